# The `braid` command, for the worker and the gateway. Kafka and the registry have images of their own: docker-compose.yml.
# The same base in both stages: the environment that the first one makes refers to that very Python.
ARG PYTHON=python:3.11-slim-bookworm

FROM ${PYTHON} AS build
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_NO_CACHE=1 UV_PYTHON_DOWNLOADS=never
RUN apt-get update -q && apt-get install -y -q --no-install-recommends gcc libc6-dev
RUN pip install --no-cache-dir --disable-pip-version-check uv==0.13.7
WORKDIR /source
# Dependencies first: they change less often than the code, and Docker then keeps this layer.
COPY requirements.lock ./
RUN uv venv /opt/braid \
 && uv pip install --python /opt/braid --require-hashes --only-binary :all: -r requirements.lock
COPY . ./
RUN uv pip install --python /opt/braid --no-deps .

FROM ${PYTHON}
RUN useradd --create-home --uid 10001 braid
COPY --from=build /opt/braid /opt/braid
ENV PATH=/opt/braid/bin:$PATH PYTHONUNBUFFERED=1
USER braid
WORKDIR /home/braid
ENTRYPOINT ["braid"]
CMD ["--help"]
