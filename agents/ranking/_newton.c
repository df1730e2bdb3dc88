/* The arithmetic of `newton.py` in C: the same operations in the same order, so the same bits.
 *
 * Only + - * / and sqrt, which IEEE 754 fixes to the last bit; it must be compiled without contraction of a * b + c
 * (-ffp-contract=off, below) and without -ffast-math. What the numbers mean, and why this ends, is said in newton.py.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <string.h>

#if defined(__FAST_MATH__) || FLT_EVAL_METHOD != 0
#error "doubles must be computed as doubles"
#endif
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

typedef struct {
    double ridge, tolerance, noise, bold, careful;
    Py_ssize_t patience, rounds;
} Rules;

/* What one component needs, all of n entries but the matrices of n * n. */
typedef struct {
    Py_ssize_t n;
    double *counts, *weights, *factors, *inverse;
    double *wins, *theta, *strengths, *step, *diagonal, *pivots, *shares, *met, *start;
} Work;

enum { MATRICES = 4, VECTORS = 7, MOST_BRANCHES = 1 << 15 };

static double exponential(double x) {
    double k = rint(x * 1.4426950408889634);
    double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    double square = r * r;
    double even = 30240.0 + square * (3360.0 + square * 30.0);
    double odd = r * (15120.0 + square * (420.0 + square));
    return ldexp((even + odd) / (even - odd), (int)k);
}

static double grown(double strength, double step) {
    double x = step * 0.03125, square = x * x;
    double even = 1680.0 + square * (180.0 + square);
    x = x * (840.0 + 20.0 * square);
    double y = (even + x) / (even - x);
    y = y * y;
    y = y * y;
    y = y * y;
    y = y * y;
    return strength * (y * y);
}

/* Where to start, and the wins as `newton_step` takes them; returns all wins. `won` has the wins of i against j at (i, j). */
static double begin(Work *w, const double *won) {
    Py_ssize_t n = w->n;
    double whole = 0.0, mean = 0.0;
    for (Py_ssize_t i = 0; i < n; i++) {
        double met = 2.0, wins = 0.0;
        for (Py_ssize_t j = 0; j < n; j++) {
            w->counts[i * n + j] = won[i * n + j] + won[j * n + i];
            met += w->counts[i * n + j];
            wins += won[i * n + j];
        }
        double y = (wins + wins + 2.0) / met - 1.0;
        w->met[i] = met;
        w->wins[i] = wins;
        w->start[i] = 2.4 * y / sqrt(1.01 - y * y);
        whole += wins;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        double others = 0.0;
        for (Py_ssize_t j = 0; j < n; j++)
            others += w->counts[i * n + j] * w->start[j];
        w->theta[i] = w->start[i] + others / w->met[i];
        mean += w->theta[i];
    }
    mean /= (double)n;
    for (Py_ssize_t i = 0; i < n; i++) {
        w->theta[i] -= mean;
        w->strengths[i] = exponential(w->theta[i]);
        for (Py_ssize_t j = 0; j < i; j++)
            w->wins[i] -= w->counts[i * n + j];
    }
    return whole;
}

/* The step at theta, and the factors of the matrix there. */
static void newton_step(Work *w, double ridge) {
    Py_ssize_t n = w->n;
    double *g = w->step, *d = w->diagonal, *m = w->weights, *f = w->factors;
    for (Py_ssize_t i = 0; i < n; i++) {
        g[i] = w->wins[i] - ridge * w->theta[i];
        d[i] = ridge;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        for (Py_ssize_t j = i + 1; j < n; j++) {
            double p = w->strengths[i] / (w->strengths[i] + w->strengths[j]);
            double u = w->counts[i * n + j] * p, v = u - u * p;
            m[j * n + i] = v;
            g[i] -= u;
            g[j] += u;
            d[i] += v;
            d[j] += v;
        }
    for (Py_ssize_t k = 0; k < n; k++) {
        w->pivots[k] = 1.0 / d[k];
        for (Py_ssize_t i = k + 1; i < n; i++) {
            double factor = f[i * n + k] = m[i * n + k] * w->pivots[k];
            if (factor == 0.0)
                continue;
            d[i] -= factor * m[i * n + k];
            g[i] += factor * g[k];
            for (Py_ssize_t j = k + 1; j < i; j++)
                m[i * n + j] += factor * m[j * n + k];
        }
    }
    for (Py_ssize_t k = 0; k < n; k++)
        g[k] *= w->pivots[k];
    for (Py_ssize_t k = n - 1; k > 0; k--)
        for (Py_ssize_t j = 0; j < k; j++)
            g[j] += f[k * n + j] * g[k];
}

/* Win probabilities, and the inverse of the matrix from its factors, from the last row up. */
static void finish(Work *w) {
    Py_ssize_t n = w->n;
    double *z = w->inverse, *f = w->factors;
    memset(w->shares, 0, (size_t)n * sizeof(double));
    for (Py_ssize_t i = 0; i < n; i++)
        for (Py_ssize_t j = i + 1; j < n; j++) {
            double both = w->strengths[i] + w->strengths[j];
            w->shares[i] += w->strengths[i] / both;
            w->shares[j] += w->strengths[j] / both;
        }
    for (Py_ssize_t i = n - 1; i >= 0; i--)
        for (Py_ssize_t j = n - 1; j >= i; j--) {
            double sum = i == j ? w->pivots[i] : 0.0;
            for (Py_ssize_t k = i + 1; k < n; k++)
                sum += f[k * n + i] * z[k * n + j];
            z[i * n + j] = z[j * n + i] = sum;
        }
}

/* Whether a maximum was found. */
static int climb(Work *w, const double *won, const Rules *rules) {
    Py_ssize_t n = w->n;
    double near = rules->tolerance + begin(w, won) * (rules->noise / rules->ridge);
    for (Py_ssize_t done = 0; done < rules->rounds; done++) {
        if (done == rules->patience)
            for (Py_ssize_t i = 0; i < n; i++) {
                w->theta[i] = 0.0;
                w->strengths[i] = 1.0;
            }
        newton_step(w, rules->ridge);
        double longest = 0.0, limit = done < rules->patience ? rules->bold : rules->careful;
        for (Py_ssize_t i = 0; i < n; i++)
            if (!(fabs(w->step[i]) <= longest)) /* not a number is no short step */
                longest = fabs(w->step[i]);
        double cut = longest > limit ? limit / longest : 1.0;
        for (Py_ssize_t i = 0; i < n; i++) {
            double step = w->step[i] * cut;
            w->theta[i] += step;
            w->strengths[i] = grown(w->strengths[i], step);
        }
        if (longest < near) {
            finish(w);
            return 1;
        }
    }
    return 0;
}

/* Fit one group; `memory` is for MATRICES + 1 matrices and VECTORS vectors. Whether a maximum was found. */
static int fit_group(Py_ssize_t n, Py_ssize_t many, const int *pairs, const double *ahead, const double *behind,
                     double *theta, double *shares, double *inverse, double *memory, const Rules *rules) {
    double *won = memory, *at = memory + n * n;
    Work w = {.n = n, .theta = theta, .shares = shares};
    double **matrices[MATRICES] = {&w.counts, &w.weights, &w.factors, &w.inverse};
    double **vectors[VECTORS] = {&w.wins, &w.strengths, &w.step, &w.diagonal, &w.pivots, &w.met, &w.start};
    for (int k = 0; k < MATRICES; k++, at += n * n)
        *matrices[k] = at;
    for (int k = 0; k < VECTORS; k++, at += n)
        *vectors[k] = at;
    memset(won, 0, (size_t)(n * n) * sizeof(double));
    for (Py_ssize_t pair = 0; pair < many; pair++) {
        Py_ssize_t i = pairs[2 * pair], j = pairs[2 * pair + 1];
        won[i * n + j] = ahead[pair];
        won[j * n + i] = behind[pair];
    }
    if (!climb(&w, won, rules))
        return 0;
    for (Py_ssize_t a = 0; a < n; a++)
        for (Py_ssize_t b = 0; b <= a; b++)
            *inverse++ = w.inverse[a * n + b];
    return 1;
}

static int of_doubles(const Py_buffer *view, Py_ssize_t count) {
    if (view->len == count * (Py_ssize_t)sizeof(double))
        return 1;
    PyErr_Format(PyExc_ValueError, "a buffer of %zd bytes where %zd doubles were expected", view->len, count);
    return 0;
}

/* Whether every pair names two branches of n. */
static int are_pairs(const Py_buffer *view, Py_ssize_t n) {
    const int *pairs = view->buf;
    int good = view->len % (Py_ssize_t)(2 * sizeof(int)) == 0;
    for (Py_ssize_t at = 0; good && at < view->len / (Py_ssize_t)sizeof(int); at++)
        good = pairs[at] >= 0 && pairs[at] < n;
    if (!good)
        PyErr_SetString(PyExc_ValueError, "pairs need two branches each");
    return good;
}

static PyObject *fit(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_ssize_t n, groups;
    Rules rules;
    Py_buffer pairs, ahead, behind, theta, shares, inverse;
    if (!PyArg_ParseTuple(args, "nny*y*y*w*w*w*(dddddnn)", &n, &groups, &pairs, &ahead, &behind, &theta, &shares,
                          &inverse, &rules.ridge, &rules.tolerance, &rules.noise, &rules.bold, &rules.careful,
                          &rules.patience, &rules.rounds))
        return NULL;
    PyObject *result = NULL;
    double *memory = NULL;
    Py_ssize_t many = pairs.len / (Py_ssize_t)(2 * sizeof(int)), entries = 0;
    if (n < 1 || n > MOST_BRANCHES || groups < 0 || groups > PY_SSIZE_T_MAX / 64 / (n * n + many)) {
        PyErr_SetString(PyExc_ValueError, "no branches, or too many branches or groups");
        goto done;
    }
    entries = n * (n + 1) / 2;
    if (!are_pairs(&pairs, n) || !of_doubles(&ahead, groups * many) || !of_doubles(&behind, groups * many) ||
        !of_doubles(&theta, groups * n) || !of_doubles(&shares, groups * n) || !of_doubles(&inverse, groups * entries))
        goto done;
    memory = PyMem_Calloc((size_t)((MATRICES + 1) * n * n + VECTORS * n), sizeof(double));
    if (memory == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    int found = 1;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t group = 0; found && group < groups; group++)
        found = fit_group(n, many, pairs.buf, (double *)ahead.buf + group * many, (double *)behind.buf + group * many,
                          (double *)theta.buf + group * n, (double *)shares.buf + group * n,
                          (double *)inverse.buf + group * entries, memory, &rules);
    Py_END_ALLOW_THREADS
    result = PyBool_FromLong(found);
done:
    PyMem_Free(memory);
    PyBuffer_Release(&pairs);
    PyBuffer_Release(&ahead);
    PyBuffer_Release(&behind);
    PyBuffer_Release(&theta);
    PyBuffer_Release(&shares);
    PyBuffer_Release(&inverse);
    return result;
}

static PyMethodDef methods[] = {
    {"fit", fit, METH_VARARGS, "fit(n, groups, pairs, ahead, behind, theta, shares, inverse, rules): the `Way` of newton.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_newton", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__newton(void) {
    return PyModule_Create(&definition);
}
