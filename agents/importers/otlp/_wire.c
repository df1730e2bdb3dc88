/* Export requests of OTLP in protobuf: split by trace without decoding spans, and spans read into dicts.

`split` walks length prefixes only. `heads` reads ids and parents. `read` gives what `request_proto.py` gives, some ten times as fast. Each
returns None for bytes that are not plain (groups, repeated single fields, bad UTF-8, deep nesting): the library decides about those. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { MAX_DEPTH = 60, TRACE = 16, SPAN = 8 };
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

typedef struct {
    const uint8_t *at, *end;
} Reader;

typedef struct {
    uint32_t number;
    int type;
    uint64_t value;      /* of a varint or a fixed field; the length of bytes */
    const uint8_t *from; /* where the field begins, with its tag */
    const uint8_t *data; /* of bytes */
} Field;

static PyObject *ODD; /* marks, as a return value, bytes that are left to the library */

static int varint(Reader *reader, uint64_t *value) {
    uint64_t found = 0;
    for (int shift = 0; shift < 64 && reader->at < reader->end; shift += 7) {
        uint8_t byte = *reader->at++;
        found |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = found;
            return 1;
        }
    }
    return 0;
}

/* 1: a field, 0: the end, -1: not plain. */
static int next(Reader *reader, Field *field) {
    uint64_t tag;
    if (reader->at >= reader->end)
        return 0;
    field->from = reader->at;
    if (!varint(reader, &tag) || tag >> 3 == 0 || tag >> 32)
        return -1;
    field->number = (uint32_t)(tag >> 3);
    field->type = (int)(tag & 7);
    if (field->type == VARINT)
        return varint(reader, &field->value) ? 1 : -1;
    if (field->type == BYTES) {
        if (!varint(reader, &field->value) || field->value > (uint64_t)(reader->end - reader->at))
            return -1;
        field->data = reader->at;
        reader->at += field->value;
        return 1;
    }
    int length = field->type == FIXED64 ? 8 : field->type == FIXED32 ? 4 : 0;
    if (!length || reader->end - reader->at < length)
        return -1;
    field->value = 0;
    memcpy(&field->value, reader->at, (size_t)length); /* little-endian machines only: see the module's init */
    reader->at += length;
    return 1;
}

static Reader inside(const Field *field) {
    return (Reader){field->data, field->data + field->value};
}

/* -- split ------------------------------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *data;
    size_t length;
} Piece;

typedef struct {
    Piece span;
    int resource, scope; /* indices of blocks */
    int trace;
    int later; /* the next entry of the same trace, or -1 */
} Entry;

typedef struct {
    int first, last; /* pieces beside the members */
} Block;

typedef struct {
    uint8_t id[TRACE];
    int first, last;
} Trace;

typedef struct {
    Entry *entries;
    Piece *pieces;
    Block *blocks;
    Trace *traces;
    int *table; /* of traces by a hash of their ids */
    int entry_count, entry_room, piece_count, piece_room, block_count, block_room, trace_count, trace_room, table_room;
    int ids[2]; /* numbers of the fields trace_id and span_id */
    int most;
} Split;

static int grown(void **items, int count, int *room, size_t size) {
    if (count < *room)
        return 1;
    int wanted = *room ? *room * 2 : 64;
    void *more = PyMem_Realloc(*items, (size_t)wanted * size);
    if (more == NULL)
        return 0;
    *items = more;
    *room = wanted;
    return 1;
}

static uint64_t mixed(const uint8_t *id) {
    uint64_t one, other;
    memcpy(&one, id, 8);
    memcpy(&other, id + 8, 8);
    one = (one ^ (other * 0x9e3779b97f4a7c15ULL)) * 0xff51afd7ed558ccdULL;
    return one ^ (one >> 32);
}

/* The index of a trace; -1 without memory. */
static int trace_of(Split *split, const uint8_t *id) {
    if (2 * (split->trace_count + 1) > split->table_room) {
        int room = split->table_room ? split->table_room * 2 : 64;
        int *table = PyMem_Malloc((size_t)room * sizeof(int));
        if (table == NULL)
            return -1;
        memset(table, 0xff, (size_t)room * sizeof(int));
        for (int each = 0; each < split->trace_count; each++) {
            uint64_t place = mixed(split->traces[each].id) & (uint64_t)(room - 1);
            while (table[place] >= 0)
                place = (place + 1) & (uint64_t)(room - 1);
            table[place] = each;
        }
        PyMem_Free(split->table);
        split->table = table;
        split->table_room = room;
    }
    uint64_t mask = (uint64_t)(split->table_room - 1), place = mixed(id) & mask;
    for (; split->table[place] >= 0; place = (place + 1) & mask)
        if (!memcmp(split->traces[split->table[place]].id, id, TRACE))
            return split->table[place];
    if (!grown((void **)&split->traces, split->trace_count, &split->trace_room, sizeof(Trace)))
        return -1;
    Trace *made = &split->traces[split->trace_count];
    memcpy(made->id, id, TRACE);
    made->first = made->last = -1;
    split->table[place] = split->trace_count;
    return split->trace_count++;
}

/* Ids of a span or a log record. 1: both are there, 0: they are missing, -1: its bytes break. */
static int identified(const Split *split, const Field *member, const uint8_t **trace) {
    Reader reader = inside(member);
    Field field;
    int found, has_trace = 0, has_span = 0;
    while ((found = next(&reader, &field)) == 1) {
        if (field.type != BYTES)
            continue;
        if ((int)field.number == split->ids[0]) {
            has_trace = field.value == TRACE;
            *trace = field.data;
        } else if ((int)field.number == split->ids[1]) {
            has_span = field.value == SPAN;
        }
    }
    return found < 0 ? -1 : has_trace && has_span;
}

/* A block whose pieces are all fields of a message but its members. */
static int block_of(Split *split, const Field *holder, uint32_t member) {
    Reader reader = inside(holder);
    Field field;
    int found;
    if (!grown((void **)&split->blocks, split->block_count, &split->block_room, sizeof(Block)))
        return -2;
    split->blocks[split->block_count].first = split->piece_count;
    while ((found = next(&reader, &field)) == 1) {
        if (field.number == member && field.type == BYTES)
            continue;
        if (!grown((void **)&split->pieces, split->piece_count, &split->piece_room, sizeof(Piece)))
            return -2;
        split->pieces[split->piece_count++] = (Piece){field.from, (size_t)(reader.at - field.from)};
    }
    split->blocks[split->block_count].last = split->piece_count;
    return found < 0 ? -1 : split->block_count++;
}

static size_t varint_size(uint64_t value) {
    size_t size = 1;
    while (value >>= 7)
        size++;
    return size;
}

static uint8_t *put_varint(uint8_t *at, uint64_t value) {
    for (; value > 0x7f; value >>= 7)
        *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

static size_t block_size(const Split *split, int block) {
    size_t size = 0;
    for (int each = split->blocks[block].first; each < split->blocks[block].last; each++)
        size += split->pieces[each].length;
    return size;
}

static uint8_t *put_block(uint8_t *at, const Split *split, int block) {
    for (int each = split->blocks[block].first; each < split->blocks[block].last; each++) {
        memcpy(at, split->pieces[each].data, split->pieces[each].length);
        at += split->pieces[each].length;
    }
    return at;
}

/* Where the entries of one scope end, and how long they are. */
static int scope_end(const Split *split, int entry, size_t *size) {
    int scope = split->entries[entry].scope;
    *size = block_size(split, scope);
    for (; entry >= 0 && split->entries[entry].scope == scope; entry = split->entries[entry].later)
        *size += 1 + varint_size(split->entries[entry].span.length) + split->entries[entry].span.length;
    return entry;
}

static int resource_end(const Split *split, int entry, size_t *size) {
    int resource = split->entries[entry].resource;
    *size = block_size(split, resource);
    while (entry >= 0 && split->entries[entry].resource == resource) {
        size_t scope;
        entry = scope_end(split, entry, &scope);
        *size += 1 + varint_size(scope) + scope;
    }
    return entry;
}

/* The request that has the spans of one trace. */
static PyObject *request_of(const Split *split, const Trace *trace) {
    size_t size = 0, part;
    for (int entry = trace->first; entry >= 0;) {
        entry = resource_end(split, entry, &part);
        size += 1 + varint_size(part) + part;
    }
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (made == NULL)
        return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AS_STRING(made);
    for (int entry = trace->first; entry >= 0;) {
        int resource = split->entries[entry].resource;
        resource_end(split, entry, &part);
        *at++ = 1 << 3 | BYTES;
        at = put_block(put_varint(at, part), split, resource);
        while (entry >= 0 && split->entries[entry].resource == resource) {
            int scope = split->entries[entry].scope;
            scope_end(split, entry, &part);
            *at++ = 2 << 3 | BYTES;
            at = put_block(put_varint(at, part), split, scope);
            for (; entry >= 0 && split->entries[entry].scope == scope; entry = split->entries[entry].later) {
                Piece span = split->entries[entry].span;
                *at++ = 2 << 3 | BYTES;
                at = put_varint(at, span.length);
                memcpy(at, span.data, span.length);
                at += span.length;
            }
        }
    }
    return made;
}

static int note(PyObject *bad, int one, int two, int three, const char *reason) {
    PyObject *told = Py_BuildValue("(iiis)", one, two, three, reason);
    int failed = told == NULL || PyList_Append(bad, told) < 0;
    Py_XDECREF(told);
    return failed ? -2 : 0;
}

/* 0: walked, -1: not a request, -2: an error is set or memory is out, -3: too many spans. */
static int walk(Split *split, Reader reader, PyObject *bad) {
    Field outer, middle, inner;
    int found, ones = 0;
    while ((found = next(&reader, &outer)) == 1) {
        if (outer.number != 1 || outer.type != BYTES)
            continue;
        int one = ones++, twos = 0, resource = block_of(split, &outer, 2), more;
        if (resource < 0)
            return resource;
        Reader scopes = inside(&outer);
        while ((more = next(&scopes, &middle)) == 1) {
            if (middle.number != 2 || middle.type != BYTES)
                continue;
            int two = twos++, threes = 0, scope = block_of(split, &middle, 2), last;
            if (scope < 0)
                return scope;
            Reader members = inside(&middle);
            while ((last = next(&members, &inner)) == 1) {
                if (inner.number != 2 || inner.type != BYTES)
                    continue;
                const uint8_t *id = NULL;
                int three = threes++, known = identified(split, &inner, &id);
                if (known <= 0) {
                    const char *reason = known ? "its bytes break" : "its trace id or span id is missing, or of another length";
                    if (note(bad, one, two, three, reason))
                        return -2;
                    continue;
                }
                if (split->entry_count >= split->most)
                    return -3;
                int trace = trace_of(split, id), place = split->entry_count;
                if (trace < 0 || !grown((void **)&split->entries, place, &split->entry_room, sizeof(Entry)))
                    return -2;
                split->entries[place] = (Entry){{inner.data, (size_t)inner.value}, resource, scope, trace, -1};
                Trace *own = &split->traces[trace];
                if (own->last >= 0)
                    split->entries[own->last].later = place;
                else
                    own->first = place;
                own->last = place;
                split->entry_count++;
            }
            if (last < 0)
                return -1;
        }
        if (more < 0)
            return -1;
    }
    return found < 0 ? -1 : 0;
}

static PyObject *told_split(const Split *split, PyObject *body, PyObject *bad) {
    PyObject *groups = PyDict_New();
    for (int each = 0; groups != NULL && each < split->trace_count; each++) {
        const Trace *trace = &split->traces[each];
        int alone = split->trace_count == 1 && !PyList_GET_SIZE(bad);
        PyObject *key = PyBytes_FromStringAndSize((const char *)trace->id, TRACE);
        PyObject *request = alone ? Py_NewRef(body) : request_of(split, trace);
        if (key == NULL || request == NULL || PyDict_SetItem(groups, key, request) < 0)
            Py_CLEAR(groups);
        Py_XDECREF(key);
        Py_XDECREF(request);
    }
    return groups == NULL ? NULL : Py_BuildValue("(NiO)", groups, split->entry_count, bad);
}

static PyObject *split(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *body;
    Split made = {0};
    if (!PyArg_ParseTuple(args, "O!iii", &PyBytes_Type, &body, &made.ids[0], &made.ids[1], &made.most))
        return NULL;
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(body);
    PyObject *bad = PyList_New(0), *told = NULL;
    if (bad != NULL) {
        int walked = walk(&made, (Reader){data, data + PyBytes_GET_SIZE(body)}, bad);
        if (walked == 0)
            told = told_split(&made, body, bad);
        else if (walked == -1)
            told = Py_NewRef(Py_None);
        else if (walked == -3)
            told = Py_NewRef(Py_False);
        else if (!PyErr_Occurred())
            PyErr_NoMemory();
    }
    Py_XDECREF(bad);
    PyMem_Free(made.entries);
    PyMem_Free(made.pieces);
    PyMem_Free(made.blocks);
    PyMem_Free(made.traces);
    PyMem_Free(made.table);
    return told;
}

/* -- reading ----------------------------------------------------------------------------------------------------------- */

static PyObject *odd(void) { return Py_NewRef(ODD); }

static PyObject *hex(const uint8_t *data, size_t length) {
    static const char DIGITS[] = "0123456789abcdef";
    PyObject *made = PyUnicode_New((Py_ssize_t)(2 * length), 127);
    if (made != NULL) {
        Py_UCS1 *at = PyUnicode_1BYTE_DATA(made);
        for (size_t each = 0; each < length; each++) {
            *at++ = (Py_UCS1)DIGITS[data[each] >> 4];
            *at++ = (Py_UCS1)DIGITS[data[each] & 15];
        }
    }
    return made;
}

static PyObject *text(const Field *field) {
    PyObject *made = PyUnicode_DecodeUTF8((const char *)field->data, (Py_ssize_t)field->value, "strict");
    if (made == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        return odd();
    }
    return made;
}

static PyObject *any_value(Reader reader, int depth);

/* Adds an attribute to a dict. 1: done, 0: not plain, -1: an error is set. */
static int add_pair(PyObject *into, Reader reader, int depth) {
    PyObject *key = NULL, *value = NULL;
    Field field;
    int found, done = 1;
    while (done == 1 && (found = next(&reader, &field)) == 1) {
        PyObject **place = field.number == 1 ? &key : field.number == 2 ? &value : NULL;
        if (place == NULL)
            continue;
        if (field.type != BYTES || (*place != NULL && place == &value)) {
            done = 0;
            break;
        }
        Py_XSETREF(*place, place == &key ? text(&field) : any_value(inside(&field), depth));
        done = *place == NULL ? -1 : *place == ODD ? 0 : 1;
    }
    if (done == 1 && found < 0)
        done = 0;
    if (done == 1) {
        PyObject *name = key == NULL ? PyUnicode_New(0, 0) : Py_NewRef(key);
        if (name == NULL || PyDict_SetItem(into, name, value == NULL ? Py_None : value) < 0)
            done = -1;
        Py_XDECREF(name);
    }
    Py_XDECREF(key);
    Py_XDECREF(value);
    return done;
}

static PyObject *members(Reader reader, int depth, int are_pairs) {
    PyObject *made = are_pairs ? PyDict_New() : PyList_New(0);
    Field field;
    int found, done = made == NULL ? -1 : 1;
    while (done == 1 && (found = next(&reader, &field)) == 1) {
        if (field.number != 1)
            continue;
        if (field.type != BYTES)
            done = 0;
        else if (are_pairs)
            done = add_pair(made, inside(&field), depth);
        else {
            PyObject *value = any_value(inside(&field), depth);
            done = value == NULL ? -1 : value == ODD ? 0 : PyList_Append(made, value) < 0 ? -1 : 1;
            Py_XDECREF(value);
        }
    }
    if (done == 1 && found >= 0)
        return made;
    Py_XDECREF(made);
    return done < 0 ? NULL : odd();
}

static PyObject *real(uint64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    PyObject *made = PyFloat_FromDouble(value);
    if (made != NULL && value - value != 0) /* no NaN, no infinities */
        Py_SETREF(made, PyObject_Str(made));
    return made;
}

static PyObject *any_value(Reader reader, int depth) {
    static const int TYPES[] = {-1, BYTES, VARINT, VARINT, FIXED64, BYTES, BYTES, BYTES};
    PyObject *made = NULL;
    Field field;
    int found;
    if (depth >= MAX_DEPTH)
        return odd();
    while ((found = next(&reader, &field)) == 1) {
        if (field.number > 7)
            continue;
        if (made != NULL || TYPES[field.number] != field.type) { /* one of several: rare enough */
            Py_XDECREF(made);
            return odd();
        }
        switch (field.number) {
        case 1: made = text(&field); break;
        case 2: made = PyBool_FromLong(field.value != 0); break;
        case 3: made = PyLong_FromLongLong((long long)field.value); break;
        case 4: made = real(field.value); break;
        case 5: made = members(inside(&field), depth + 1, 0); break;
        case 6: made = members(inside(&field), depth + 1, 1); break;
        default: made = hex(field.data, (size_t)field.value);
        }
        if (made == NULL || made == ODD)
            return made;
    }
    if (found < 0) {
        Py_XDECREF(made);
        return odd();
    }
    return made == NULL ? Py_NewRef(Py_None) : made;
}

static PyObject *instance(PyObject *type, PyObject *fields) {
    PyObject *args = fields == NULL ? NULL : PyTuple_Pack(1, fields);
    PyObject *made = args == NULL ? NULL : PyTuple_Type.tp_new((PyTypeObject *)type, args, NULL);
    Py_XDECREF(args);
    Py_XDECREF(fields);
    return made;
}

static PyObject *nanos(uint64_t value) {
    return PyLong_FromUnsignedLongLong(value <= INT64_MAX ? value : 0);
}

/* A message of a name, a time or ids, and attributes: an event (`type` is its class) or a link. */
static PyObject *event(Reader reader, PyObject *type) {
    PyObject *name = PyUnicode_New(0, 0), *attributes = PyDict_New(), *made = NULL;
    uint64_t time = 0;
    Field field;
    int found = 1, done = name != NULL && attributes != NULL ? 1 : -1;
    while (done == 1 && (found = next(&reader, &field)) == 1) {
        if (field.number == 1 && field.type == FIXED64)
            time = field.value;
        else if (field.number == 2 && field.type == BYTES) {
            Py_SETREF(name, text(&field));
            done = name == NULL ? -1 : name != ODD;
        } else if (field.number == 3 && field.type == BYTES)
            done = add_pair(attributes, inside(&field), 0);
        else if (field.number <= 3)
            done = 0;
    }
    if (done == 1 && found == 0)
        made = instance(type, Py_BuildValue("(ONOO)", name, nanos(time), attributes, Py_None));
    else if (done >= 0)
        made = odd();
    Py_XDECREF(name);
    Py_XDECREF(attributes);
    return made;
}

static PyObject *link_of(Reader reader) {
    Field field, trace = {0}, span = {0};
    PyObject *attributes = PyDict_New(), *made = NULL;
    int found = 1, done = attributes == NULL ? -1 : 1;
    while (done == 1 && (found = next(&reader, &field)) == 1) {
        if (field.number == 1 && field.type == BYTES)
            trace = field;
        else if (field.number == 2 && field.type == BYTES)
            span = field;
        else if (field.number == 4 && field.type == BYTES)
            done = add_pair(attributes, inside(&field), 0);
        else if (field.number <= 2 || field.number == 4)
            done = 0;
    }
    if (done == 1 && found == 0)
        made = Py_BuildValue("{sNsNsO}", "traceId", hex(trace.data, trace.value), "spanId", hex(span.data, span.value),
                             "attributes", attributes);
    else if (done >= 0)
        made = odd();
    Py_XDECREF(attributes);
    return made;
}

typedef struct {
    PyObject *span, *event, *problem; /* classes */
    PyObject *found;
    PyObject *resource, *scope;
    int one, two, three;
} Reading;

/* 1: appended, 0: not plain, -1: an error is set. */
static int append(PyObject *list, PyObject *value) {
    int done = value == NULL ? -1 : value == ODD ? 0 : PyList_Append(list, value) < 0 ? -1 : 1;
    Py_XDECREF(value);
    return done;
}

static PyObject *more_of(uint64_t kind, PyObject *links) {
    static const char *KINDS[] = {"SPAN_KIND_UNSPECIFIED", "SPAN_KIND_INTERNAL", "SPAN_KIND_SERVER",
                                  "SPAN_KIND_CLIENT", "SPAN_KIND_PRODUCER", "SPAN_KIND_CONSUMER"};
    PyObject *more = kind <= 5 ? Py_BuildValue("{ss}", "kind", KINDS[kind]) : PyDict_New();
    if (more != NULL && PyList_GET_SIZE(links) && PyDict_SetItemString(more, "links", links) < 0)
        Py_CLEAR(more);
    return more;
}

static int add_span(Reading *reading, Reader reader) {
    Field field, trace = {0}, id = {0}, parent = {0};
    uint64_t start = 0, end = 0, kind = 0, flags = 0, code = 0;
    PyObject *name = PyUnicode_New(0, 0), *message = PyUnicode_New(0, 0), *attributes = PyDict_New();
    PyObject *events = PyList_New(0), *links = PyList_New(0), *made = NULL;
    int found = 1, statuses = 0, done = name && message && attributes && events && links ? 1 : -1;
    while (done == 1 && (found = next(&reader, &field)) == 1) {
        static const int TYPES[] = {-1, 2, 2, 2, 2, 2, 0, 1, 1, 2, 0, 2, 0, 2, 0, 2, 5};
        if (field.number > 16)
            continue;
        if (TYPES[field.number] != field.type) {
            done = 0;
            break;
        }
        switch (field.number) {
        case 1: trace = field; break;
        case 2: id = field; break;
        case 4: parent = field; break;
        case 5: Py_SETREF(name, text(&field)); done = name == NULL ? -1 : name != ODD; break;
        case 6: kind = field.value; break;
        case 7: start = field.value; break;
        case 8: end = field.value; break;
        case 9: done = add_pair(attributes, inside(&field), 0); break;
        case 11: done = append(events, event(inside(&field), reading->event)); break;
        case 13: done = append(links, link_of(inside(&field))); break;
        case 15: {
            Reader status = inside(&field);
            Field each;
            int more = 1;
            done = !statuses++;
            while (done == 1 && (more = next(&status, &each)) == 1) {
                if (each.number == 3 && each.type == VARINT)
                    code = each.value;
                else if (each.number == 2 && each.type == BYTES) {
                    Py_SETREF(message, text(&each));
                    done = message == NULL ? -1 : message != ODD;
                } else if (each.number == 2 || each.number == 3)
                    done = 0;
            }
            if (done == 1 && more < 0)
                done = 0;
            break;
        }
        case 16: flags = field.value; break;
        }
    }
    if (done == 1 && found < 0)
        done = 0;
    if (done == 1 && (trace.value != TRACE || id.value != SPAN)) {
        made = instance(reading->problem, Py_BuildValue("(NsO)",
            PyUnicode_FromFormat("resourceSpans[%d].scopeSpans[%d].spans[%d]", reading->one, reading->two, reading->three),
            "traceId or spanId: missing, or of another length", name));
        done = append(reading->found, made);
    } else if (done == 1) {
        int has_parent = 0;
        for (uint64_t each = 0; each < parent.value; each++)
            has_parent |= parent.data[each];
        PyObject *above = has_parent ? hex(parent.data, parent.value) : Py_NewRef(Py_None);
        made = instance(reading->span, Py_BuildValue("(NNNONNOOOOOONO)", hex(trace.data, TRACE), hex(id.data, SPAN), above,
            name, nanos(start), nanos(end), code == 2 ? Py_True : Py_False, message, attributes, events, reading->resource,
            reading->scope, more_of(kind, links), (flags & 0x300) == 0x300 ? Py_True : Py_False));
        done = append(reading->found, made);
    }
    Py_XDECREF(name);
    Py_XDECREF(message);
    Py_XDECREF(attributes);
    Py_XDECREF(events);
    Py_XDECREF(links);
    return done;
}

/* The resource of a block, or the name of its scope; ODD where it is there twice. */
static PyObject *described(Reader reader, int is_scope) {
    Field field, holder = {0};
    int found, count = 0;
    while ((found = next(&reader, &field)) == 1)
        if (field.number == 1) {
            if (field.type != BYTES || count++)
                return odd();
            holder = field;
        }
    if (found < 0)
        return odd();
    if (!is_scope)
        return count ? members(inside(&holder), 0, 1) : PyDict_New();
    PyObject *parts[2] = {PyUnicode_New(0, 0), PyUnicode_New(0, 0)}, *made = NULL;
    int done = parts[0] && parts[1] ? 1 : -1;
    Reader inner = holder.data == NULL ? (Reader){NULL, NULL} : inside(&holder);
    found = 0;
    while (done == 1 && (found = next(&inner, &field)) == 1)
        if (field.number == 1 || field.number == 2) {
            if (field.type != BYTES) {
                done = 0;
                break;
            }
            PyObject **part = &parts[field.number - 1];
            Py_SETREF(*part, text(&field));
            done = *part == NULL ? -1 : *part != ODD;
        }
    if (done == 1 && found == 0) {
        PyObject *joined = PyUnicode_FromFormat("%U %U", parts[0], parts[1]);
        made = joined == NULL ? NULL : PyObject_CallMethod(joined, "strip", NULL);
        Py_XDECREF(joined);
    } else if (done >= 0)
        made = odd();
    Py_XDECREF(parts[0]);
    Py_XDECREF(parts[1]);
    return made;
}

static int read_scope(Reading *reading, Reader members) {
    Field field;
    int found, done = 1;
    reading->three = 0;
    while (done == 1 && (found = next(&members, &field)) == 1) {
        if (field.number != 2)
            continue;
        done = field.type == BYTES ? add_span(reading, inside(&field)) : 0;
        reading->three++;
    }
    return done == 1 && found < 0 ? 0 : done;
}

static int read_resource(Reading *reading, Reader scopes) {
    Field field;
    int found, done = 1;
    reading->two = 0;
    while (done == 1 && (found = next(&scopes, &field)) == 1) {
        if (field.number != 2)
            continue;
        if (field.type != BYTES)
            return 0;
        reading->scope = described(inside(&field), 1);
        done = reading->scope == NULL ? -1 : reading->scope == ODD ? 0 : read_scope(reading, inside(&field));
        Py_CLEAR(reading->scope);
        reading->two++;
    }
    return done == 1 && found < 0 ? 0 : done;
}

static PyObject *read_spans(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer body;
    Reading reading = {0};
    if (!PyArg_ParseTuple(args, "y*OOO", &body, &reading.span, &reading.event, &reading.problem))
        return NULL;
    Reader reader = {body.buf, (const uint8_t *)body.buf + body.len};
    Field field;
    int found, done = (reading.found = PyList_New(0)) == NULL ? -1 : 1;
    while (done == 1 && (found = next(&reader, &field)) == 1) {
        if (field.number != 1)
            continue;
        if (field.type != BYTES) {
            done = 0;
            break;
        }
        reading.resource = described(inside(&field), 0);
        done = reading.resource == NULL ? -1 : reading.resource == ODD ? 0 : read_resource(&reading, inside(&field));
        Py_CLEAR(reading.resource);
        reading.one++;
    }
    PyBuffer_Release(&body);
    if (done == 1 && found >= 0)
        return reading.found;
    Py_XDECREF(reading.found);
    return done < 0 ? NULL : Py_NewRef(Py_None);
}

static int add_head(PyObject *heads, Reader reader) {
    Field field, id = {0}, parent = {0};
    uint64_t end = 0;
    int found, has_parent = 0;
    while ((found = next(&reader, &field)) == 1) {
        if (field.number == 2 && field.type == BYTES)
            id = field;
        else if (field.number == 4 && field.type == BYTES)
            parent = field;
        else if (field.number == 8 && field.type == FIXED64)
            end = field.value;
    }
    if (found < 0)
        return 0;
    for (uint64_t each = 0; each < parent.value; each++)
        has_parent |= parent.data[each];
    return append(heads, Py_BuildValue("(y#y#O)", id.data == NULL ? (const uint8_t *)"" : id.data, (Py_ssize_t)id.value,
        has_parent ? parent.data : NULL, (Py_ssize_t)parent.value, end ? Py_True : Py_False));
}

/* Of each span its id, its parent's (None for a root) and whether it has ended. */
static PyObject *heads(PyObject *Py_UNUSED(module), PyObject *body) {
    if (!PyBytes_Check(body)) {
        PyErr_SetString(PyExc_TypeError, "bytes are expected");
        return NULL;
    }
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(body);
    PyObject *made = PyList_New(0);
    Reader reader = {data, data + PyBytes_GET_SIZE(body)};
    Field outer, middle, inner;
    int found, more, last, done = made == NULL ? -1 : 1;
    while (done == 1 && (found = next(&reader, &outer)) == 1) {
        if (outer.number != 1 || outer.type != BYTES)
            continue;
        Reader scopes = inside(&outer);
        while (done == 1 && (more = next(&scopes, &middle)) == 1) {
            if (middle.number != 2 || middle.type != BYTES)
                continue;
            Reader spans = inside(&middle);
            while (done == 1 && (last = next(&spans, &inner)) == 1)
                if (inner.number == 2 && inner.type == BYTES)
                    done = add_head(made, inside(&inner));
            if (done == 1 && last < 0)
                done = 0;
        }
        if (done == 1 && more < 0)
            done = 0;
    }
    if (done == 1 && found >= 0)
        return made;
    Py_XDECREF(made);
    return done < 0 ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef METHODS[] = {
    {"split", split, METH_VARARGS, NULL},
    {"heads", heads, METH_O, NULL},
    {"read_spans", read_spans, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "agents.importers.otlp._wire", NULL, -1, METHODS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__wire(void) {
    const uint16_t one = 1;
    if (*(const uint8_t *)&one != 1) {
        PyErr_SetString(PyExc_ImportError, "written for little-endian machines");
        return NULL;
    }
    if (ODD == NULL && (ODD = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type)) == NULL)
        return NULL;
    return PyModule_Create(&MODULE);
}
