/* Whether orjson, with sorted keys, writes a value in canonical form: `in_python` of `canonical.py`, six times as fast. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>

enum { MAX_DEPTH = 200 };

static const long long MAX_INTEGER = 1LL << 53;
static const double SAME_FRACTION_FROM = 1e-4, SAME_FRACTION_BELOW = 1e15;

/* 1: it does, 0: it does not, -1: an error is set. */
static int alike(PyObject *value, int depth);

static int items_alike(PyObject *items, int depth) {
    int found = depth < MAX_DEPTH;
    for (Py_ssize_t at = 0; found == 1 && at < PySequence_Fast_GET_SIZE(items); at++)
        found = alike(PySequence_Fast_GET_ITEM(items, at), depth + 1);
    return found;
}

static int members_alike(PyObject *members, int depth) {
    PyObject *key, *value;
    if (depth >= MAX_DEPTH)
        return 0;
    int found = 1;
    for (Py_ssize_t at = 0; PyDict_Next(members, &at, &key, &value);) {
        if (!PyUnicode_Check(key)) {
            PyErr_SetString(PyExc_TypeError, "a key that is no string");
            return -1;
        }
        found = found && PyUnicode_IS_ASCII(key); /* ASCII keys have one order in UTF-8 and UTF-16 */
    }
    for (Py_ssize_t at = 0; found == 1 && PyDict_Next(members, &at, &key, &value);)
        found = alike(value, depth + 1);
    return found;
}

static int alike(PyObject *value, int depth) {
    if (PyUnicode_CheckExact(value) || PyBool_Check(value) || value == Py_None)
        return 1;
    if (PyLong_CheckExact(value)) {
        int beyond;
        long long number = PyLong_AsLongLongAndOverflow(value, &beyond);
        return !beyond && number >= -MAX_INTEGER && number <= MAX_INTEGER;
    }
    if (PyFloat_CheckExact(value)) {
        double number = PyFloat_AS_DOUBLE(value), size = fabs(number);
        return size >= SAME_FRACTION_FROM && size < SAME_FRACTION_BELOW && floor(number) != number;
    }
    if (PyDict_CheckExact(value))
        return members_alike(value, depth);
    return PyList_CheckExact(value) || PyTuple_CheckExact(value) ? items_alike(value, depth) : 0;
}

static PyObject *written_alike(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    if (count < 1 || count > 2) {
        PyErr_SetString(PyExc_TypeError, "a value is expected, and how deep it is");
        return NULL;
    }
    long depth = count == 2 ? PyLong_AsLong(args[1]) : 0;
    if (depth == -1 && PyErr_Occurred())
        return NULL;
    int found = alike(args[0], depth < 0 || depth > MAX_DEPTH ? MAX_DEPTH : (int)depth);
    return found < 0 ? NULL : PyBool_FromLong(found);
}

static PyMethodDef methods[] = {
    {"written_alike", (PyCFunction)(void (*)(void))written_alike, METH_FASTCALL,
     "written_alike(value, depth=0): whether orjson writes it in canonical form."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_canonical", NULL, 0, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__canonical(void) { return PyModule_Create(&definition); }
