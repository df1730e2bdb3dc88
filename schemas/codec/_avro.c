/* Records from Avro bytes, to Avro bytes, and from values.

   A plan of `plan.py` is read once, into nodes. Writer(plan)(object) returns bytes, and its many(objects) those of all of them.
   Reader(plan, UnusualError)(data, at=0) returns a value and where it ends, and its many(data, count) a list of values that fill
   the data. Wrong bytes are a ValueError; a value that only the model can judge is an UnusualError.

   Maker(model, blank, fresh, missing)(**values) returns an instance of a model, as the class of that name in `maker.py` does. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum { STRING, LONG, DOUBLE, BYTES, BOOLEAN, OPTIONAL, ARRAY, MAP, RECORD, FIXED } Kind;
typedef enum { A_DICT, A_TUPLE, A_MODEL } Made;

static const char *const KINDS[] = {"string", "long", "double", "bytes", "boolean", "optional", "array", "map", "record", "fixed"};

enum { SLOTS = 3 };

/* What an instance of a model is made of, beside its values. */
typedef struct {
    PyTypeObject *type;
    PyObject *set; /* the names that are set */
    Py_ssize_t slots[SLOTS]; /* where they lie in an instance */
} Model;

typedef struct Node {
    Kind kind;
    int null;          /* OPTIONAL: the place of null */
    int as_tuple;      /* ARRAY */
    int limited;       /* DOUBLE */
    Py_ssize_t least, most;
    PyObject *words;   /* STRING: a frozenset, or NULL */
    PyObject *value;   /* FIXED: what is read, from no bytes */
    long long low, high;
    double lowest, highest;
    Py_ssize_t count;  /* nodes below */
    struct Node *inner;
    PyObject **names;  /* RECORD */
    Made made;
    Model model;       /* A_TUPLE has only the type */
    PyObject *blank;   /* a dict with all names: copied, it need not grow */
} Node;

static PyObject *wrong(const char *what) {
    PyErr_SetString(PyExc_ValueError, what);
    return NULL;
}

/* A tuple of some class, still without its values. Since 3.14 a tuple keeps its hash, and -1 says that there is none yet. */
static PyObject *new_tuple(PyTypeObject *type, Py_ssize_t count) {
    PyObject *made = type->tp_alloc(type, count);
#if PY_VERSION_HEX >= 0x030E0000
    if (made != NULL)
        ((PyTupleObject *)made)->ob_hash = -1;
#endif
    return made;
}

static PyObject *instance(const Model *model, PyObject *values) {
    PyObject *made = model->type->tp_alloc(model->type, 0);
    if (made == NULL || PyObject_GenericSetDict(made, values, NULL) < 0) {
        Py_XDECREF(made);
        return NULL;
    }
    for (int slot = 0; slot < SLOTS; slot++)
        *(PyObject **)((char *)made + model->slots[slot]) = Py_NewRef(slot == 0 ? model->set : Py_None);
    return made;
}

/* -- plans --------------------------------------------------------------------------------------------------------- */

static void forget_model(Model *model) {
    Py_CLEAR(model->type);
    Py_CLEAR(model->set);
}

static void forget(Node *node) {
    for (Py_ssize_t at = 0; at < node->count; at++) {
        if (node->inner != NULL)
            forget(&node->inner[at]);
        if (node->names != NULL)
            Py_XDECREF(node->names[at]);
    }
    PyMem_Free(node->inner);
    PyMem_Free(node->names);
    Py_XDECREF(node->words);
    Py_XDECREF(node->value);
    Py_XDECREF(node->blank);
    forget_model(&node->model);
    memset(node, 0, sizeof *node);
}

static int learn(Node *node, PyObject *plan);

static int learn_below(Node *node, PyObject *plans, Py_ssize_t count) {
    node->inner = PyMem_Calloc((size_t)count + 1, sizeof(Node));
    if (node->inner == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    node->count = count;
    for (Py_ssize_t at = 0; at < count; at++)
        if (!learn(&node->inner[at], PyTuple_GET_ITEM(plans, at)))
            return 0;
    return 1;
}

static int learn_model(Model *model, PyObject *made) {
    PyObject *type, *set, *slots;
    if (!PyArg_ParseTuple(made, "O!O!O!", &PyType_Type, &type, &PySet_Type, &set, &PyTuple_Type, &slots))
        return 0;
    if (PyTuple_GET_SIZE(slots) != SLOTS) {
        PyErr_SetString(PyExc_ValueError, "a model has three slots");
        return 0;
    }
    model->type = (PyTypeObject *)Py_NewRef(type);
    model->set = Py_NewRef(set);
    for (int slot = 0; slot < SLOTS; slot++) {
        PyObject *descriptor = PyTuple_GET_ITEM(slots, slot);
        PyMemberDef *member = Py_IS_TYPE(descriptor, &PyMemberDescr_Type) ? ((PyMemberDescrObject *)descriptor)->d_member : NULL;
        if (member == NULL || member->type != T_OBJECT_EX || !PyType_IsSubtype(model->type, PyDescr_TYPE(descriptor))) {
            PyErr_SetString(PyExc_TypeError, "a slot that cannot be set");
            return 0;
        }
        model->slots[slot] = member->offset;
    }
    return 1;
}

static int learn_record(Node *node, PyObject *plan) {
    PyObject *names, *plans, *made;
    if (!PyArg_ParseTuple(plan, "sO!O!O", &(const char *){0}, &PyTuple_Type, &names, &PyTuple_Type, &plans, &made))
        return 0;
    Py_ssize_t count = PyTuple_GET_SIZE(names);
    if (count != PyTuple_GET_SIZE(plans)) {
        PyErr_SetString(PyExc_ValueError, "a record has as many plans as names");
        return 0;
    }
    if (!learn_below(node, plans, count))
        return 0;
    node->names = PyMem_Calloc((size_t)count + 1, sizeof(PyObject *));
    node->blank = PyDict_New();
    if (node->names == NULL || node->blank == NULL) {
        if (!PyErr_Occurred())
            PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        node->names[at] = Py_NewRef(PyTuple_GET_ITEM(names, at));
        PyUnicode_InternInPlace(&node->names[at]); /* so that the same name is nearly always the same object */
        if (PyDict_SetItem(node->blank, node->names[at], Py_None) < 0)
            return 0;
    }
    if (made == (PyObject *)&PyDict_Type)
        node->made = A_DICT;
    else if (PyType_Check(made) && PyType_IsSubtype((PyTypeObject *)made, &PyTuple_Type)) {
        node->made = A_TUPLE;
        node->model.type = (PyTypeObject *)Py_NewRef(made);
    } else {
        node->made = A_MODEL;
        return PyTuple_Check(made) ? learn_model(&node->model, made) : wrong("a record is made a dict, a tuple or a model") != NULL;
    }
    return 1;
}

static int learn(Node *node, PyObject *plan) {
    const char *kind;
    if (!PyTuple_Check(plan) || PyTuple_GET_SIZE(plan) < 1 ||
        (kind = PyUnicode_AsUTF8(PyTuple_GET_ITEM(plan, 0))) == NULL) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a plan is a tuple that begins with its kind");
        return 0;
    }
    int known = 0, total = (int)(sizeof KINDS / sizeof *KINDS);
    while (known < total && strcmp(kind, KINDS[known]) != 0)
        known++;
    PyObject *words, *inner;
    switch (known) {
    case STRING:
        if (!PyArg_ParseTuple(plan, "snnO", &kind, &node->least, &node->most, &words))
            return 0;
        node->words = words == Py_None ? NULL : Py_NewRef(words);
        break;
    case LONG:
        if (!PyArg_ParseTuple(plan, "sLL", &kind, &node->low, &node->high))
            return 0;
        break;
    case DOUBLE:
        if (!PyArg_ParseTuple(plan, "sddp", &kind, &node->lowest, &node->highest, &node->limited))
            return 0;
        break;
    case BYTES:
    case BOOLEAN:
        break;
    case OPTIONAL:
        if (!PyArg_ParseTuple(plan, "siO!", &kind, &node->null, &PyTuple_Type, &inner))
            return 0;
        plan = PyTuple_Pack(1, inner);
        break;
    case ARRAY:
    case MAP:
        if (!PyArg_ParseTuple(plan, "sO!p", &kind, &PyTuple_Type, &inner, &node->as_tuple))
            return 0;
        plan = PyTuple_Pack(1, inner);
        break;
    case RECORD:
        node->kind = RECORD;
        return learn_record(node, plan);
    case FIXED:
        if (!PyArg_ParseTuple(plan, "sO", &kind, &inner))
            return 0;
        node->value = Py_NewRef(inner);
        break;
    default:
        PyErr_Format(PyExc_ValueError, "no plan is of the kind %s", kind);
        return 0;
    }
    node->kind = (Kind)known;
    if (known != OPTIONAL && known != ARRAY && known != MAP)
        return 1;
    int learnt = plan != NULL && learn_below(node, plan, 1);
    Py_XDECREF(plan);
    return learnt;
}

/* -- writing --------------------------------------------------------------------------------------------------------- */

typedef struct {
    char *bytes;
    size_t used, room;
} Out;

static int grow(Out *out, size_t more) {
    size_t room = out->room * 2;
    while (room < out->used + more)
        room *= 2;
    char *bytes = PyMem_Realloc(out->bytes, room);
    if (bytes == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    out->bytes = bytes;
    out->room = room;
    return 1;
}

static inline int has_room(Out *out, size_t more) { return out->room - out->used >= more || grow(out, more); }

static int put_long(Out *out, long long value) {
    if (!has_room(out, 10))
        return 0;
    uint64_t bits = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    for (; bits > 0x7f; bits >>= 7)
        out->bytes[out->used++] = (char)((bits & 0x7f) | 0x80);
    out->bytes[out->used++] = (char)bits;
    return 1;
}

static int put_bytes(Out *out, const char *bytes, Py_ssize_t size) {
    if (bytes == NULL || !put_long(out, size) || !has_room(out, (size_t)size))
        return 0;
    memcpy(out->bytes + out->used, bytes, (size_t)size);
    out->used += (size_t)size;
    return 1;
}

static int put_text(Out *out, PyObject *value) {
    Py_ssize_t size = 0;
    const char *bytes = PyUnicode_AsUTF8AndSize(value, &size);
    return put_bytes(out, bytes, size);
}

static int put(Out *out, const Node *node, PyObject *value);

static int put_places(Out *out, const Node *node, PyObject *value) {
    int done = PyTuple_GET_SIZE(value) == node->count || wrong("a tuple has as many values as its record has fields") != NULL;
    for (Py_ssize_t at = 0; done && at < node->count; at++)
        done = put(out, &node->inner[at], PyTuple_GET_ITEM(value, at));
    return done;
}

static int put_fields(Out *out, const Node *node, PyObject *value) {
    if (PyTuple_Check(value))
        return put_places(out, node, value);
    /* Records keep their values in a dict, nearly always in the order of the fields; what does not is asked for each of them. */
    PyObject *values = Py_TYPE(value)->tp_dictoffset == 0 ? NULL : PyObject_GenericGetDict(value, NULL);
    Py_ssize_t step = 0;
    int done = 1;
    if (values == NULL)
        PyErr_Clear();
    for (Py_ssize_t at = 0; done && at < node->count; at++) {
        PyObject *name = NULL, *field = NULL;
        if (values != NULL && PyDict_Next(values, &step, &name, &field) && name == node->names[at])
            Py_INCREF(field);
        else
            field = values == NULL ? NULL : Py_XNewRef(PyDict_GetItemWithError(values, node->names[at]));
        if (field == NULL && !PyErr_Occurred())
            field = PyObject_GetAttr(value, node->names[at]);
        done = field != NULL && put(out, &node->inner[at], field);
        Py_XDECREF(field);
    }
    Py_XDECREF(values);
    return done;
}

static int put_array(Out *out, const Node *node, PyObject *value) {
    PyObject *items = PySequence_Tuple(value); /* nobody can change it meanwhile; a tuple is itself */
    if (items == NULL)
        return 0;
    Py_ssize_t count = PyTuple_GET_SIZE(items);
    int done = count == 0 || put_long(out, count);
    for (Py_ssize_t at = 0; done && at < count; at++)
        done = put(out, node->inner, PyTuple_GET_ITEM(items, at));
    Py_DECREF(items);
    return done && put_long(out, 0);
}

static int put_map(Out *out, const Node *node, PyObject *value) {
    PyObject *items = PyMapping_Items(value);
    if (items == NULL)
        return 0;
    Py_ssize_t count = PyList_GET_SIZE(items);
    int done = count == 0 || put_long(out, count);
    for (Py_ssize_t at = 0; done && at < count; at++) {
        PyObject *pair = PyList_GET_ITEM(items, at);
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) { /* a mapping of its own kind may give anything */
            PyErr_SetString(PyExc_TypeError, "the items of a map are pairs");
            done = 0;
            break;
        }
        done = put_text(out, PyTuple_GET_ITEM(pair, 0)) && put(out, node->inner, PyTuple_GET_ITEM(pair, 1));
    }
    Py_DECREF(items);
    return done && put_long(out, 0);
}

static int put_double(Out *out, PyObject *value) {
    double number = PyFloat_AsDouble(value);
    if ((number == -1.0 && PyErr_Occurred()) || !has_room(out, 8) ||
        PyFloat_Pack8(number, out->bytes + out->used, 1) < 0)
        return 0;
    out->used += 8;
    return 1;
}

static int put_whole(Out *out, PyObject *value) {
    int beyond;
    long long number = PyLong_AsLongLongAndOverflow(value, &beyond);
    if (beyond)
        PyErr_SetString(PyExc_OverflowError, "an Avro long has 64 bits");
    return !beyond && !(number == -1 && PyErr_Occurred()) && put_long(out, number);
}

static int put(Out *out, const Node *node, PyObject *value) {
    switch (node->kind) {
    case STRING:
        return put_text(out, value);
    case LONG:
        return put_whole(out, value);
    case DOUBLE:
        return put_double(out, value);
    case BYTES:
        if (!PyBytes_Check(value)) {
            PyErr_Format(PyExc_TypeError, "bytes are expected, not %s", Py_TYPE(value)->tp_name);
            return 0;
        }
        return put_bytes(out, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
    case BOOLEAN: {
        int truth = PyObject_IsTrue(value);
        if (truth < 0 || !has_room(out, 1))
            return 0;
        out->bytes[out->used++] = (char)truth;
        return 1;
    }
    case OPTIONAL:
        if (value == Py_None)
            return put_long(out, node->null);
        return put_long(out, 1 - node->null) && put(out, node->inner, value);
    case ARRAY:
        return put_array(out, node, value);
    case MAP:
        return put_map(out, node, value);
    case RECORD:
        return put_fields(out, node, value);
    case FIXED:
        return 1;
    }
    Py_UNREACHABLE();
}

/* -- reading --------------------------------------------------------------------------------------------------------- */

typedef struct {
    const unsigned char *at, *end;
    PyObject *unusual;
} In;

static PyObject *too_short(void) { return wrong("it ends too early"); }

static PyObject *unusual(In *in) {
    PyErr_SetNone(in->unusual);
    return NULL;
}

static int take_long(In *in, long long *value) {
    uint64_t bits = 0;
    for (int shift = 0;; shift += 7) {
        if (shift > 63)
            return wrong("a long of more than 64 bits") != NULL;
        if (in->at == in->end)
            return too_short() != NULL;
        unsigned char byte = *in->at++;
        if (shift == 63 && (byte & 0x7e) && byte < 0x80)
            return wrong("a long of more than 64 bits") != NULL;
        bits |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            break;
    }
    *value = (long long)(bits >> 1) ^ -(long long)(bits & 1);
    return 1;
}

static int take_size(In *in, Py_ssize_t *size) {
    long long value;
    if (!take_long(in, &value))
        return 0;
    if (value < 0)
        return wrong("a negative length") != NULL;
    *size = (Py_ssize_t)value;
    return 1;
}

/* The bytes of a string: where they begin, and how many there are. */
static const char *take_span(In *in, Py_ssize_t *size) {
    if (!take_size(in, size))
        return NULL;
    if (*size > in->end - in->at)
        return (const char *)too_short();
    const char *bytes = (const char *)in->at;
    in->at += *size;
    return bytes;
}

static int take_block(In *in, Py_ssize_t *items) {
    long long value;
    Py_ssize_t size;
    if (!take_long(in, &value))
        return 0;
    if (value < 0) { /* a negative count is followed by the block's size in bytes */
        if (!take_size(in, &size))
            return 0;
        if (value == INT64_MIN)
            return wrong("more items than bytes") != NULL;
        value = -value;
    }
    if (value > in->end - in->at) /* every item takes at least a byte */
        return wrong("more items than bytes") != NULL;
    *items = (Py_ssize_t)value;
    return 1;
}

static PyObject *take(In *in, const Node *node);

static PyObject *take_text(In *in, const Node *node) {
    Py_ssize_t size;
    const char *bytes = take_span(in, &size);
    PyObject *text = bytes == NULL ? NULL : PyUnicode_DecodeUTF8(bytes, size, NULL);
    if (text == NULL)
        return NULL;
    Py_ssize_t length = PyUnicode_GET_LENGTH(text);
    int usual = length >= node->least && length <= node->most;
    if (usual && node->words != NULL)
        usual = PySet_Contains(node->words, text);
    if (usual == 1)
        return text;
    Py_DECREF(text);
    return usual < 0 ? NULL : unusual(in);
}

static PyObject *take_array(In *in, const Node *node) {
    PyObject *found = PyList_New(0);
    Py_ssize_t items = 0;
    int good = found != NULL && take_block(in, &items);
    while (good && items > 0) {
        for (; good && items > 0; items--) {
            PyObject *item = take(in, node->inner);
            good = item != NULL && PyList_Append(found, item) == 0;
            Py_XDECREF(item);
        }
        good = good && take_block(in, &items);
    }
    if (!good)
        Py_CLEAR(found);
    else if (node->as_tuple)
        Py_SETREF(found, PyList_AsTuple(found));
    return found;
}

static PyObject *take_map(In *in, const Node *node) {
    PyObject *found = PyDict_New();
    Py_ssize_t items = 0, size;
    int good = found != NULL && take_block(in, &items);
    while (good && items > 0) {
        for (; good && items > 0; items--) {
            const char *bytes = take_span(in, &size);
            PyObject *key = bytes == NULL ? NULL : PyUnicode_DecodeUTF8(bytes, size, NULL);
            PyObject *item = key == NULL ? NULL : take(in, node->inner);
            good = item != NULL && PyDict_SetItem(found, key, item) == 0;
            Py_XDECREF(key);
            Py_XDECREF(item);
        }
        good = good && take_block(in, &items);
    }
    if (!good)
        Py_CLEAR(found);
    return found;
}

static PyObject *take_tuple(In *in, const Node *node) {
    PyObject *made = new_tuple(node->model.type, node->count);
    for (Py_ssize_t at = 0; made != NULL && at < node->count; at++) {
        PyObject *value = take(in, &node->inner[at]);
        if (value == NULL)
            Py_CLEAR(made);
        else
            PyTuple_SET_ITEM(made, at, value);
    }
    return made;
}

static PyObject *take_fields(In *in, const Node *node) {
    if (node->made == A_TUPLE)
        return take_tuple(in, node);
    PyObject *found = PyDict_Copy(node->blank);
    for (Py_ssize_t at = 0; found != NULL && at < node->count; at++) {
        PyObject *value = take(in, &node->inner[at]);
        if (value == NULL || PyDict_SetItem(found, node->names[at], value) < 0)
            Py_CLEAR(found);
        Py_XDECREF(value);
    }
    if (found != NULL && node->made == A_MODEL)
        Py_SETREF(found, instance(&node->model, found));
    return found;
}

static PyObject *take(In *in, const Node *node) {
    switch (node->kind) {
    case STRING:
        return take_text(in, node);
    case LONG: {
        long long value;
        if (!take_long(in, &value))
            return NULL;
        return value < node->low || value > node->high ? unusual(in) : PyLong_FromLongLong(value);
    }
    case DOUBLE: {
        if (in->end - in->at < 8)
            return too_short();
        double value = PyFloat_Unpack8((const char *)in->at, 1);
        if (value == -1.0 && PyErr_Occurred())
            return NULL;
        in->at += 8;
        return node->limited && !(value >= node->lowest && value <= node->highest) ? unusual(in)
                                                                                    : PyFloat_FromDouble(value);
    }
    case BYTES: {
        Py_ssize_t size;
        const char *bytes = take_span(in, &size);
        return bytes == NULL ? NULL : PyBytes_FromStringAndSize(bytes, size);
    }
    case BOOLEAN:
        if (in->at == in->end)
            return too_short();
        return *in->at > 1 ? wrong("not a boolean") : PyBool_FromLong(*in->at++);
    case OPTIONAL:
        if (in->at == in->end)
            return too_short();
        if (*in->at != 0 && *in->at != 2)
            return wrong("no such branch of a union");
        return *in->at++ == 2 * node->null ? Py_NewRef(Py_None) : take(in, node->inner);
    case ARRAY:
        return take_array(in, node);
    case MAP:
        return take_map(in, node);
    case RECORD:
        return take_fields(in, node);
    case FIXED:
        return PyList_Check(node->value) ? PyList_GetSlice(node->value, 0, PY_SSIZE_T_MAX) : Py_NewRef(node->value);
    }
    Py_UNREACHABLE();
}

/* -- for Python ------------------------------------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Node node;
    PyObject *unusual; /* of a reader: the error for what only a model can judge */
} Follower;

static void follower_free(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    forget(&((Follower *)self)->node);
    Py_XDECREF(((Follower *)self)->unusual);
    type->tp_free(self);
    Py_DECREF(type);
}

static int no_words(PyObject *kwargs) {
    if (kwargs == NULL || PyDict_GET_SIZE(kwargs) == 0)
        return 1;
    PyErr_SetString(PyExc_TypeError, "no keyword is taken");
    return 0;
}

/* Whether a call has so many arguments, and no names. */
static int takes(size_t nargsf, PyObject *kwnames, Py_ssize_t least, Py_ssize_t most) {
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    if ((kwnames == NULL || PyTuple_GET_SIZE(kwnames) == 0) && count >= least && count <= most)
        return 1;
    PyErr_Format(PyExc_TypeError, "%zd to %zd arguments are taken, and no names", least, most);
    return 0;
}

/* The bytes of so many values, one after the other. */
static PyObject *written(PyObject *self, PyObject *const *values, Py_ssize_t count, size_t room) {
    PyObject *result = NULL;
    Out out = {PyMem_Malloc(room), 0, room};
    if (out.bytes == NULL)
        return PyErr_NoMemory();
    int done = 1;
    for (Py_ssize_t at = 0; done && at < count; at++)
        done = put(&out, &((Follower *)self)->node, values[at]);
    if (done)
        result = PyBytes_FromStringAndSize(out.bytes, (Py_ssize_t)out.used);
    PyMem_Free(out.bytes);
    return result;
}

static PyObject *write_value(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    return takes(nargsf, kwnames, 1, 1) ? written(self, args, 1, 4096) : NULL;
}

static PyObject *write_many(PyObject *self, PyObject *values) {
    PyObject *held = PySequence_Tuple(values); /* nobody can change it meanwhile */
    if (held == NULL)
        return NULL;
    PyObject *result = written(self, PySequence_Fast_ITEMS(held), PyTuple_GET_SIZE(held), 512 * 1024);
    Py_DECREF(held);
    return result;
}

static PyObject *read_value(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    if (!takes(nargsf, kwnames, 1, 2))
        return NULL;
    PyObject *data = args[0];
    Py_ssize_t from = PyVectorcall_NARGS(nargsf) == 1 ? 0 : PyNumber_AsSsize_t(args[1], PyExc_OverflowError);
    if (from == -1 && PyErr_Occurred())
        return NULL;
    if (!PyBytes_Check(data))
        return PyErr_Format(PyExc_TypeError, "bytes are expected, not %s", Py_TYPE(data)->tp_name);
    if (from < 0 || from > PyBytes_GET_SIZE(data))
        return too_short();
    const unsigned char *bytes = (const unsigned char *)PyBytes_AS_STRING(data);
    In in = {bytes + from, bytes + PyBytes_GET_SIZE(data), ((Follower *)self)->unusual};
    PyObject *value = take(&in, &((Follower *)self)->node);
    return value == NULL ? NULL : Py_BuildValue("(Nn)", value, (Py_ssize_t)(in.at - bytes));
}

static PyObject *read_many(PyObject *self, PyObject *args) {
    PyObject *data;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "Sn", &data, &count))
        return NULL;
    const unsigned char *bytes = (const unsigned char *)PyBytes_AS_STRING(data);
    In in = {bytes, bytes + PyBytes_GET_SIZE(data), ((Follower *)self)->unusual};
    PyObject *found = PyList_New(0);
    for (; found != NULL && count > 0; count--) {
        PyObject *value = take(&in, &((Follower *)self)->node);
        if (value == NULL || PyList_Append(found, value) < 0)
            Py_CLEAR(found);
        Py_XDECREF(value);
    }
    if (found != NULL && in.at != in.end) {
        Py_CLEAR(found);
        PyErr_Format(PyExc_ValueError, "%zd bytes are left over", (Py_ssize_t)(in.end - in.at));
    }
    return found;
}

static PyObject *follower_new(PyTypeObject *type, PyObject *plan, PyObject *error, vectorcallfunc call) {
    PyObject *self = type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    ((Follower *)self)->call = call;
    ((Follower *)self)->unusual = Py_XNewRef(error);
    if (!learn(&((Follower *)self)->node, plan))
        Py_CLEAR(self);
    return self;
}

static PyObject *writer_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *plan;
    return no_words(kwargs) && PyArg_ParseTuple(args, "O", &plan) ? follower_new(type, plan, NULL, write_value) : NULL;
}

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *plan, *error;
    return no_words(kwargs) && PyArg_ParseTuple(args, "OO", &plan, &error) ? follower_new(type, plan, error, read_value) : NULL;
}

static PyMethodDef writer_methods[] = {
    {"many", write_many, METH_O, "many(values): the bytes of all of them, one after the other."},
    {NULL, NULL, 0, NULL},
};
static PyMethodDef reader_methods[] = {
    {"many", read_many, METH_VARARGS, "many(data, count): so many values, one after the other, that fill the data."},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef follower_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Follower, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot writer_slots[] = {
    {Py_tp_new, writer_new}, {Py_tp_dealloc, follower_free}, {Py_tp_call, PyVectorcall_Call},
    {Py_tp_methods, writer_methods}, {Py_tp_members, follower_members}, {0, NULL},
};
static PyType_Slot reader_slots[] = {
    {Py_tp_new, reader_new}, {Py_tp_dealloc, follower_free}, {Py_tp_call, PyVectorcall_Call},
    {Py_tp_methods, reader_methods}, {Py_tp_members, follower_members}, {0, NULL},
};
static PyType_Spec writer_spec = {"schemas.codec._avro.Writer", sizeof(Follower), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, writer_slots};
static PyType_Spec reader_spec = {"schemas.codec._avro.Reader", sizeof(Follower), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, reader_slots};

/* -- records of values ------------------------------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Model model;
    PyObject *blank; /* all names: with their defaults, or with `missing` */
    PyObject *fresh; /* the names that get a new dict each time */
    PyObject *missing;
    PyObject *named; /* names that were given last and found to be all that are needed: code gives the same ones each time */
} Maker;

static void maker_free(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Maker *maker = (Maker *)self;
    forget_model(&maker->model);
    Py_XDECREF(maker->blank);
    Py_XDECREF(maker->fresh);
    Py_XDECREF(maker->missing);
    Py_XDECREF(maker->named);
    type->tp_free(self);
    Py_DECREF(type);
}

static int is_complete(const Maker *maker, PyObject *values) {
    if (PyDict_GET_SIZE(values) != PyDict_GET_SIZE(maker->blank)) {
        PyErr_Format(PyExc_TypeError, "%s has no such field", maker->model.type->tp_name);
        return 0;
    }
    PyObject *name, *value;
    for (Py_ssize_t at = 0; PyDict_Next(values, &at, &name, &value);)
        if (value == maker->missing) {
            PyErr_Format(PyExc_TypeError, "%s needs %U", maker->model.type->tp_name, name);
            return 0;
        }
    return 1;
}

static PyObject *make(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    Maker *maker = (Maker *)self;
    Py_ssize_t count = PyVectorcall_NARGS(nargsf);
    if (count != 0) {
        PyErr_SetString(PyExc_TypeError, "values are given by name");
        return NULL;
    }
    PyObject *values = PyDict_Copy(maker->blank), *made = NULL;
    int good = values != NULL;
    for (Py_ssize_t at = 0; good && kwnames != NULL && at < PyTuple_GET_SIZE(kwnames); at++)
        good = PyDict_SetItem(values, PyTuple_GET_ITEM(kwnames, at), args[at]) == 0;
    for (Py_ssize_t at = 0; good && at < PyTuple_GET_SIZE(maker->fresh); at++) {
        PyObject *name = PyTuple_GET_ITEM(maker->fresh, at);
        if (PyDict_GetItemWithError(values, name) != Py_None)
            continue;
        PyObject *empty = PyDict_New();
        good = empty != NULL && PyDict_SetItem(values, name, empty) == 0;
        Py_XDECREF(empty);
    }
    if (good && kwnames != maker->named) {
        good = is_complete(maker, values);
        if (good)
            Py_XSETREF(maker->named, Py_XNewRef(kwnames));
    }
    if (good)
        made = instance(&maker->model, values);
    Py_XDECREF(values);
    return made;
}

static PyObject *maker_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *model, *blank, *fresh, *missing;
    if (!no_words(kwargs) ||
        !PyArg_ParseTuple(args, "O!O!O!O", &PyTuple_Type, &model, &PyDict_Type, &blank, &PyTuple_Type, &fresh, &missing))
        return NULL;
    PyObject *self = type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    Maker *maker = (Maker *)self;
    maker->call = make;
    maker->blank = PyDict_Copy(blank);
    maker->fresh = Py_NewRef(fresh);
    maker->missing = Py_NewRef(missing);
    if (maker->blank == NULL || !learn_model(&maker->model, model))
        Py_CLEAR(self);
    return self;
}

static PyMemberDef maker_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Maker, call), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot maker_slots[] = {
    {Py_tp_new, maker_new}, {Py_tp_dealloc, maker_free}, {Py_tp_call, PyVectorcall_Call}, {Py_tp_members, maker_members}, {0, NULL},
};
static PyType_Spec maker_spec = {"schemas.codec._avro.Maker", sizeof(Maker), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
                                 maker_slots};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_avro", NULL, -1, NULL, NULL, NULL, NULL, NULL};

static int add_type(PyObject *module, const char *name, PyType_Spec *spec) {
    PyObject *type = PyType_FromSpec(spec);
    int added = type != NULL && PyModule_AddObjectRef(module, name, type) == 0;
    Py_XDECREF(type);
    return added;
}

PyMODINIT_FUNC PyInit__avro(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && !(add_type(module, "Writer", &writer_spec) && add_type(module, "Reader", &reader_spec) &&
                            add_type(module, "Maker", &maker_spec)))
        Py_CLEAR(module);
    return module;
}
