"""In place of the plugin that the layout's image installs: test.sh names its option."""


def pytest_addoption(parser):
    parser.addoption("--ctrf")
