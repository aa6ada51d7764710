/* SPDX-License-Identifier: Apache-2.0 */
#include "config/yaml.h"
#include "base/buf.h"
#include "base/fd.h"

#include <fcntl.h>
#include <unistd.h>
#include <yaml.h>

struct yaml_reader {
    yaml_parser_t parser;
    const char *name;
    struct err *err;
    unsigned depth, values;
};

static json_t *yaml_refuse(struct yaml_reader *r, const yaml_event_t *event, const char *what)
{
    (void)err_set(r->err, ERR_INVALID_ARGUMENT, "%.96s:%zu: %s", r->name, event->start_mark.line + 1, what);
    return NULL;
}

static bool yaml_next(struct yaml_reader *r, yaml_event_t *event)
{
    if (yaml_parser_parse(&r->parser, event))
        return true;
    const char *problem = r->parser.problem, *context = r->parser.context;
    (void)err_set(r->err, ERR_INVALID_ARGUMENT, "%.96s:%zu: %s%s", r->name, r->parser.problem_mark.line + 1,
                  problem ? problem : "malformed",
                  context && strstr(context, "alias") ? " (write \"*.name\" in quotes)" : "");
    return false;
}

static json_t *yaml_scalar(struct yaml_reader *r, const yaml_event_t *event)
{
    struct str text = str_n(event->data.scalar.value, event->data.scalar.length);
    bool is_plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    int64_t number;
    json_t *value;
    if (event->data.scalar.anchor || event->data.scalar.tag)
        return yaml_refuse(r, event, "anchors and tags are not known here");
    if (is_plain && (text.n == 0 || str_eqc(text, "null") || str_eqc(text, "~")))
        return json_null();
    if (is_plain && (str_eqc(text, "true") || str_eqc(text, "false")))
        return json_boolean(text.p[0] == 't');
    if (is_plain && str_to_i64(text, &number) == 0)
        return json_integer(number);
    value = json_stringn(text.p, text.n);
    return value ? value : yaml_refuse(r, event, "not UTF-8");
}

static json_t *node(struct yaml_reader *r, const yaml_event_t *event);

static json_t *yaml_list(struct yaml_reader *r, const yaml_event_t *begin)
{
    json_t *array = json_array();
    if (begin->data.sequence_start.anchor || begin->data.sequence_start.tag) {
        json_decref(array);
        return yaml_refuse(r, begin, "anchors and tags are not known here");
    }
    for (;;) {
        yaml_event_t event;
        if (!yaml_next(r, &event))
            break;
        if (event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            return array;
        }
        json_t *value = node(r, &event);
        yaml_event_delete(&event);
        if (!value)
            break;
        (void)json_array_append_new(array, value);
    }
    json_decref(array);
    return NULL;
}

/* One "key: value"; 0 at the end, -1 when it is malformed. */
static int yaml_member(struct yaml_reader *r, json_t *object)
{
    yaml_event_t key, event;
    int result = -1;
    if (!yaml_next(r, &key))
        return -1;
    if (key.type == YAML_MAPPING_END_EVENT) {
        yaml_event_delete(&key);
        return 0;
    }
    const char *name = (const char *)key.data.scalar.value;
    if (key.type != YAML_SCALAR_EVENT || key.data.scalar.anchor || key.data.scalar.tag ||
        strlen(name) != key.data.scalar.length || !str_is_utf8(str_of(name))) {
        (void)yaml_refuse(r, &key, "a key must be a text");
    } else if (json_object_get(object, name)) {
        (void)yaml_refuse(r, &key, "the same key as before");
    } else if (yaml_next(r, &event)) {
        json_t *value = node(r, &event);
        yaml_event_delete(&event);
        if (value && json_object_set_new(object, name, value) == 0)
            result = 1;
    }
    yaml_event_delete(&key);
    return result;
}

static json_t *mapping(struct yaml_reader *r, const yaml_event_t *begin)
{
    json_t *object = json_object();
    int more = 1;
    if (begin->data.mapping_start.anchor || begin->data.mapping_start.tag) {
        (void)yaml_refuse(r, begin, "anchors and tags are not known here");
        more = -1;
    }
    while (more > 0)
        more = yaml_member(r, object);
    if (more == 0)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *node(struct yaml_reader *r, const yaml_event_t *event)
{
    json_t *value;
    if (++r->values > YAML_VALUES_MAX || r->depth == YAML_DEPTH_MAX)
        return yaml_refuse(r, event, "too many values, or nested too deep");
    r->depth++;
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        value = yaml_scalar(r, event);
        break;
    case YAML_SEQUENCE_START_EVENT:
        value = yaml_list(r, event);
        break;
    case YAML_MAPPING_START_EVENT:
        value = mapping(r, event);
        break;
    case YAML_ALIAS_EVENT:
        value = yaml_refuse(r, event, "an alias; write \"*.name\" in quotes");
        break;
    default:
        value = yaml_refuse(r, event, "the file is empty");
        break;
    }
    r->depth--;
    return value;
}

/* The next event, which must be of this type. */
static bool expect(struct yaml_reader *r, yaml_event_type_t type)
{
    yaml_event_t event;
    if (!yaml_next(r, &event))
        return false;
    bool is_right = event.type == type;
    if (!is_right)
        (void)yaml_refuse(r, &event, "there must be exactly one document");
    yaml_event_delete(&event);
    return is_right;
}

static json_t *document(struct yaml_reader *r)
{
    yaml_event_t event;
    if (!expect(r, YAML_STREAM_START_EVENT) || !expect(r, YAML_DOCUMENT_START_EVENT) || !yaml_next(r, &event))
        return NULL;
    json_t *value = node(r, &event);
    yaml_event_delete(&event);
    if (value && expect(r, YAML_DOCUMENT_END_EVENT) && expect(r, YAML_STREAM_END_EVENT))
        return value;
    json_decref(value);
    return NULL;
}

static int parse_json(const char *name, struct str text, json_t **ret_json, struct err *err)
{
    json_error_t why;
    json_t *json = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, &why);
    if (!json)
        return err_set(err, ERR_INVALID_ARGUMENT, "%.96s:%d: %s", name, why.line, why.text);
    *ret_json = json;
    return 0;
}

/* Does what an object or array opens begin as JSON has it? */
static bool yaml_is_quoted(struct str text)
{
    text = str_trim(text);
    return !text.n || strchr("\"{[]}", *text.p);
}

int yaml_parse(const char *name, struct str text, json_t **ret_json, struct err *err)
{
    struct yaml_reader r = {.name = name, .err = err};
    size_t blank = 0;
    if (!text.p)
        text = STR("");
    if (text.n > YAML_TEXT_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%.96s: longer than %d KiB", name, YAML_TEXT_MAX / 1024);
    while (blank < text.n && strchr(" \t\r\n", text.p[blank]) && text.p[blank])
        blank++;
    /* JSON, and what isn't is the same in YAML without quotes: a mistake is told as JSON's where quotes begin it. */
    bool may_be_json = blank < text.n && (text.p[blank] == '{' || text.p[blank] == '[');
    if (may_be_json && parse_json(name, text, ret_json, err) == 0)
        return 0;
    if (may_be_json && yaml_is_quoted(str_sub(text, blank + 1)))
        return -1;
    if (!yaml_parser_initialize(&r.parser))
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "%.96s: out of memory", name);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text.p, text.n);
    json_t *json = document(&r);
    yaml_parser_delete(&r.parser);
    if (!json)
        return -1;
    *ret_json = json;
    return 0;
}

int yaml_read(const char *path, json_t **ret_json, struct err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(YAML_TEXT_MAX);
    bool is_stdin = strcmp(path, "-") == 0;
    int r = is_stdin ? fd_read_all(STDIN_FILENO, &text) : fd_read_file(AT_FDCWD, path, &text);
    if (r == -ENOBUFS)
        return err_set(err, ERR_INVALID_ARGUMENT, "%.96s: longer than %d KiB", path, YAML_TEXT_MAX / 1024);
    if (r < 0)
        return err_errno(err, r, "read %.96s", path);
    return yaml_parse(is_stdin ? "stdin" : path, buf_str(&text), ret_json, err);
}

/* ---- where something stands ---- */

struct yaml_finder {
    yaml_parser_t parser;
    const char *place;
    char at[256];
    size_t best, line; /* so much of the place was found, and there */
};

static void finder_see(struct yaml_finder *f, const yaml_event_t *event, size_t n)
{
    bool fits =
        n <= strlen(f->place) && strncmp(f->place, f->at, n) == 0 && (!f->place[n] || strchr(".[", f->place[n]) || !n);
    if (fits && n >= f->best) {
        f->best = n;
        f->line = event->start_mark.line + 1;
    }
}

/* One value, whose place is the first n bytes of f->at. False: the end of what holds it, or of the text. */
static bool finder_value(struct yaml_finder *f, size_t n, unsigned depth)
{
    yaml_event_t event, key;
    bool more = depth < YAML_DEPTH_MAX && n + 64 < sizeof(f->at) && yaml_parser_parse(&f->parser, &event);
    if (!more)
        return false;
    yaml_event_type_t type = event.type;
    if (type != YAML_SEQUENCE_END_EVENT && type != YAML_MAPPING_END_EVENT)
        finder_see(f, &event, n);
    yaml_event_delete(&event);
    for (size_t i = 0; type == YAML_SEQUENCE_START_EVENT && more; i++)
        more = finder_value(f, n + (size_t)snprintf(f->at + n, 32, "[%zu]", i), depth + 1);
    while (type == YAML_MAPPING_START_EVENT && more && yaml_parser_parse(&f->parser, &key)) {
        bool is_key = key.type == YAML_SCALAR_EVENT;
        size_t m = n;
        if (is_key) {
            m += (size_t)snprintf(f->at + n, 60, "%s%.56s", n ? "." : "", (const char *)key.data.scalar.value);
            m = MIN(m, n + 59);
            finder_see(f, &key, m);
        }
        yaml_event_delete(&key);
        if (!is_key)
            return true;
        more = finder_value(f, m, depth + 1);
    }
    return type != YAML_SEQUENCE_END_EVENT && type != YAML_MAPPING_END_EVENT && type != YAML_NO_EVENT;
}

size_t yaml_line(const char *path, const char *place)
{
    AUTO_BUF struct buf text = BUF_INIT(YAML_TEXT_MAX);
    struct yaml_finder f = {.place = place};
    if (strcmp(path, "-") == 0 || fd_read_file(AT_FDCWD, path, &text) < 0 || !yaml_parser_initialize(&f.parser))
        return 0;
    yaml_parser_set_input_string(&f.parser, (const unsigned char *)buf_data(&text), buf_len(&text));
    yaml_event_t event;
    for (int i = 0; i < 2 && yaml_parser_parse(&f.parser, &event); i++) /* the stream's and the document's beginning */
        yaml_event_delete(&event);
    (void)finder_value(&f, 0, 0);
    yaml_parser_delete(&f.parser);
    return f.line;
}
