/* `zcrawl.parse.tags_in_python.survey` once more, in C: the same result in a fiftieth of the time.
 *
 * tags_in_python.py has the rules and their reasons; change both, tests/property/test_tags.py compares them.
 * One pass over the bytes of a page: memchr finds the brackets, nothing is allocated but the list
 * of tags that may stay open. Reads only inside [begin, end).
 */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define MOST_OPEN 32
#define LONG_TAG 256
#define LONGEST_NAME 7 /* acronym */

typedef enum { OTHER, FORMATTING, LINK, INLINE, VOID, ROOT, REFERENCE } Kind;

typedef struct {
    const char *name;
    Kind kind;
} Entry;

static const Entry ENTRIES[] = {
    {"a", LINK},        {"span", INLINE},    {"code", FORMATTING}, {"b", FORMATTING},
    {"i", FORMATTING},  {"em", FORMATTING},  {"strong", FORMATTING}, {"br", VOID},
    {"img", VOID},      {"acronym", INLINE}, {"small", FORMATTING}, {"sup", INLINE},
    {"sub", INLINE},    {"label", INLINE},   {"u", FORMATTING},    {"s", FORMATTING},
    {"tt", FORMATTING}, {"font", FORMATTING}, {"big", FORMATTING}, {"strike", FORMATTING},
    {"nobr", FORMATTING}, {"abbr", INLINE},  {"bdi", INLINE},      {"bdo", INLINE},
    {"cite", INLINE},   {"data", INLINE},    {"dfn", INLINE},      {"kbd", INLINE},
    {"mark", INLINE},   {"q", INLINE},       {"samp", INLINE},     {"time", INLINE},
    {"var", INLINE},    {"wbr", VOID},       {"html", ROOT},       {"body", ROOT},
    {"area", REFERENCE}, {"base", REFERENCE}, {"frame", REFERENCE}, {"iframe", REFERENCE},
};
#define ENTRY_COUNT (sizeof(ENTRIES) / sizeof(ENTRIES[0]))

/* The entries by their names as numbers, filled when the module is loaded: a hash table. */
#define SLOT_BITS 7
#define SLOT_COUNT (1 << SLOT_BITS)
static struct {
    uint64_t code; /* 0: free */
    Kind kind;
} SLOTS[SLOT_COUNT];

typedef struct {
    const char *begin;
    const char *end;
} Text;

typedef struct {
    uint64_t code; /* of its name */
    Kind kind;
    Text tag;
} Open;

typedef struct {
    Py_ssize_t tags, longest_link, closed;
    uint64_t squares;
    int quoted, references;
    PyObject *open_tags;
    Open stack[MOST_OPEN];
    int depth;
} Walk;

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int is_space(char c) /* as HTML has it */
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\f';
}

static uint64_t code_of(const char *name, Py_ssize_t length)
{
    uint64_t code = 0;
    for (Py_ssize_t i = 0; i < length; i++)
        code = code << 8 | (unsigned char)(name[i] | 0x20); /* in lower case */
    return code;
}

/* The slot of a name, or the free one that it would get. */
static unsigned slot_of(uint64_t code)
{
    unsigned slot = (unsigned)(code * 0x9E3779B97F4A7C15u >> (64 - SLOT_BITS));
    while (SLOTS[slot].code != 0 && SLOTS[slot].code != code)
        slot = (slot + 1) % SLOT_COUNT;
    return slot;
}

static Kind kind_of(uint64_t code)
{
    return SLOTS[slot_of(code)].kind; /* a free one has the kind OTHER */
}

/* Words, as bytes.split() has them, and `/` and `=`. */
static uint64_t count_attributes(Text tag)
{
    uint64_t count = 0;
    int in_word = 0;
    for (const char *c = tag.begin; c < tag.end; c++) {
        int space = is_space(*c) || *c == '\v';
        count += !space && !in_word;
        in_word = !space;
        count += *c == '/' || *c == '=';
    }
    return count;
}

static int list_tag(Walk *walk, Kind kind, Text tag)
{
    if (kind == LINK) {
        Py_ssize_t count = (Py_ssize_t)count_attributes(tag);
        if (count > walk->longest_link)
            walk->longest_link = count;
    }
    else if (kind == FORMATTING || kind == ROOT) {
        PyObject *text = PyBytes_FromStringAndSize(tag.begin, tag.end - tag.begin);
        if (text == NULL)
            return -1;
        int failed = PyList_Append(walk->open_tags, text);
        Py_DECREF(text);
        return failed;
    }
    return 0;
}

static int flush(Walk *walk)
{
    int depth = walk->depth;
    walk->depth = 0;
    for (int i = 0; i < depth; i++)
        if (list_tag(walk, walk->stack[i].kind, walk->stack[i].tag) < 0)
            return -1;
    return 0;
}

static int take_inline(Walk *walk, Kind kind, uint64_t code, Text tag, int is_end)
{
    if (is_end) {
        if (walk->depth > 0 && walk->stack[walk->depth - 1].code == code) {
            walk->depth--;
            walk->closed++;
            return 0;
        }
        return flush(walk);
    }
    if (walk->depth == MOST_OPEN && flush(walk) < 0)
        return -1;
    Open *top = &walk->stack[walk->depth++];
    top->code = code;
    top->kind = kind;
    top->tag = tag;
    return 0;
}

/* One tag, without its brackets. `odd`: it has a `<` in it. */
static int take(Walk *walk, Text tag, int odd)
{
    if (tag.end - tag.begin > LONG_TAG) {
        uint64_t count = count_attributes(tag);
        walk->squares += count * count;
    }
    const char *name = tag.begin;
    int is_end = name < tag.end && *name == '/';
    name += is_end;
    const char *behind = name;
    while (behind < tag.end && is_letter(*behind))
        behind++;
    Py_ssize_t length = behind - name;
    int is_name = length > 0 && (behind == tag.end || is_space(*behind) || *behind == '/');
    if (!is_name || length > LONGEST_NAME)
        return flush(walk);
    uint64_t code = code_of(name, length);
    Kind kind = kind_of(code);
    if (kind == REFERENCE) {
        walk->references = 1;
        kind = OTHER;
    }
    if (odd || kind == OTHER || kind == ROOT) {
        if (flush(walk) < 0)
            return -1;
        return is_end ? 0 : list_tag(walk, kind, tag);
    }
    if (kind == VOID)
        return 0;
    return take_inline(walk, kind, code, tag, is_end);
}

/* Whether the last quote of this kind begins a value. Only the last can be open, because a quote
 * that begins a value is closed by any later one. */
static int is_last_quote_open(Text tag, char quote)
{
    const char *at = tag.end;
    do {
        if (at == tag.begin)
            return 0;
    } while (*--at != quote);
    while (at > tag.begin && is_space(at[-1]))
        at--;
    return at > tag.begin && at[-1] == '=';
}

/* Whether a quote that begins a value is still open where the tag ends. */
static int has_open_quote(Text tag)
{
    size_t length = (size_t)(tag.end - tag.begin);
    if (memchr(tag.begin, '=', length) == NULL)
        return 0;
    return is_last_quote_open(tag, '"') ||
           (memchr(tag.begin, '\'', length) != NULL && is_last_quote_open(tag, '\''));
}

static int walk_through(Walk *walk, Text markup)
{
    const char *start = memchr(markup.begin, '<', (size_t)(markup.end - markup.begin));
    while (start != NULL) {
        walk->tags++;
        const char *next = memchr(start + 1, '<', (size_t)(markup.end - start - 1));
        char first = start + 1 < markup.end ? start[1] : ' ';
        if (is_letter(first) || first == '/' || first == '!' || first == '?') {
            const char *close = memchr(start, '>', (size_t)(markup.end - start));
            if (close == NULL) { /* a tag that does not end is dropped */
                for (; next != NULL; walk->tags++)
                    next = memchr(next + 1, '<', (size_t)(markup.end - next - 1));
                return 0;
            }
            Text tag = {start + 1, close};
            if (has_open_quote(tag)) {
                walk->quoted = 1;
                return 0;
            }
            int odd = 0;
            while (next != NULL && next < close) {
                odd = 1;
                walk->tags++;
                next = memchr(next + 1, '<', (size_t)(markup.end - next - 1));
            }
            if (take(walk, tag, odd) < 0)
                return -1;
        }
        start = next;
    }
    return 0;
}

static PyObject *survey(PyObject *Py_UNUSED(module), PyObject *page)
{
    char *bytes;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(page, &bytes, &length) < 0)
        return NULL;
    Walk walk = {0};
    walk.open_tags = PyList_New(0);
    if (walk.open_tags == NULL)
        return NULL;
    Text markup = {bytes, bytes + length};
    if (walk_through(&walk, markup) < 0) {
        Py_DECREF(walk.open_tags);
        return NULL;
    }
    return Py_BuildValue("(nOKnnNO)", walk.tags, walk.quoted ? Py_True : Py_False,
                         (unsigned long long)walk.squares, walk.longest_link, walk.closed,
                         walk.open_tags, walk.references ? Py_True : Py_False);
}

static PyMethodDef METHODS[] = {
    {"survey", survey, METH_O, "Look at all tags of a page: the fields of a Survey, as a tuple."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_tags", "The survey of zcrawl.parse.tags, compiled.", -1, METHODS,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__tags(void)
{
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        uint64_t code = code_of(ENTRIES[i].name, (Py_ssize_t)strlen(ENTRIES[i].name));
        unsigned slot = slot_of(code);
        SLOTS[slot].code = code;
        SLOTS[slot].kind = ENTRIES[i].kind;
    }
    return PyModule_Create(&MODULE);
}
