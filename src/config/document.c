/* SPDX-License-Identifier: Apache-2.0 */
#include "config/document.h"
#include "base/map.h"

#include <yaml.h>

enum { KEY_MAX = 64 };

struct config_document_walk {
    const char *name;
    struct str text;
    bool (*is_section)(struct str key);
    document_fn fn;
    void *ctx;
    struct err *err;
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; owned */
    struct map seen;    /* keys with section */
};

static int complain(struct config_document_walk *w, size_t line, const char *what)
{
    return err_set(w->err, ERR_INVALID_ARGUMENT, "%s:%zu: %s", w->name, line + 1, what);
}

static bool has_ipv6(struct str text, size_t line)
{
    struct str one = STR("");
    for (size_t i = 0; i <= line; i++)
        if (!str_split(&text, '\n', &one))
            return false;
    return one.n > 0 && memmem(one.p, one.n, "::", 2);
}

static int document_next(struct config_document_walk *w)
{
    yaml_event_delete(&w->event);
    if (!yaml_parser_parse(&w->parser, &w->event)) {
        char what[128];
        size_t line = w->parser.problem_mark.line;
        (void)snprintf(what, sizeof(what), "not YAML: %s%s", w->parser.problem ? w->parser.problem : "out of memory",
                       has_ipv6(w->text, line) ? "; an IPv6 address needs quotes: \"[::1]:7070\"" : "");
        return complain(w, line, what);
    }
    const yaml_event_t *e = &w->event;
    if (e->type == YAML_ALIAS_EVENT ||
        (e->type == YAML_SCALAR_EVENT && (e->data.scalar.anchor || e->data.scalar.tag)) ||
        (e->type == YAML_MAPPING_START_EVENT && (e->data.mapping_start.anchor || e->data.mapping_start.tag)) ||
        (e->type == YAML_SEQUENCE_START_EVENT && (e->data.sequence_start.anchor || e->data.sequence_start.tag)))
        return complain(w, e->start_mark.line, "anchors, aliases and tags have no use here");
    return 0;
}

static struct str document_scalar(const struct config_document_walk *w)
{
    return str_n(w->event.data.scalar.value, w->event.data.scalar.length);
}

static int report(struct config_document_walk *w, const char *key, bool first, bool in_list)
{
    size_t line = w->event.start_mark.line;
    if (str_has_nul(document_scalar(w)))
        return complain(w, line, "a value holds a NUL byte");
    if (w->fn(w->ctx, key, document_scalar(w), first, in_list, w->err) < 0)
        return err_prefix(w->err, "%s:%zu", w->name, line + 1);
    return 0;
}

static int walk_list(struct config_document_walk *w, const char *key)
{
    for (bool first = true;; first = false) {
        if (document_next(w) < 0)
            return -1;
        if (w->event.type == YAML_SEQUENCE_END_EVENT)
            return first ? complain(w, w->event.start_mark.line, "an empty list says nothing; leave the key out") : 0;
        if (w->event.type != YAML_SCALAR_EVENT)
            return complain(w, w->event.start_mark.line, "a list holds plain values only");
        if (report(w, key, first, true) < 0)
            return -1;
    }
}

static int walk_mapping(struct config_document_walk *w, const char *section, int depth)
{
    for (;;) {
        char key[2 * KEY_MAX + 2];
        if (document_next(w) < 0)
            return -1;
        if (w->event.type == YAML_MAPPING_END_EVENT)
            return 0;
        size_t line = w->event.start_mark.line;
        if (w->event.type != YAML_SCALAR_EVENT || document_scalar(w).n > KEY_MAX || str_has_nul(document_scalar(w)) ||
            str_find_char(document_scalar(w), '.') >= 0)
            return complain(w, line, "a key must be a short word");
        (void)snprintf(key, sizeof(key), "%s%s%.*s", section, *section ? "." : "", STR_ARG(document_scalar(w)));
        bool named_section = depth == 0 && w->is_section(document_scalar(w));

        if (map_put(&w->seen, str_of(key), w)) {
            char what[KEY_MAX * 2 + 64];
            (void)snprintf(what, sizeof(what), "\"%s\" is given twice", key);
            return complain(w, line, what);
        }
        if (document_next(w) < 0)
            return -1;
        int r;
        if (named_section) {
            if (w->event.type != YAML_MAPPING_START_EVENT) {
                char what[KEY_MAX * 2 + 64];
                (void)snprintf(what, sizeof(what), "\"%s\" is a section of keys", key);
                return complain(w, line, what);
            }
            r = walk_mapping(w, key, depth + 1);
        } else if (w->event.type == YAML_SCALAR_EVENT) {
            r = report(w, key, true, false);
        } else if (w->event.type == YAML_SEQUENCE_START_EVENT) {
            r = walk_list(w, key);
        } else {
            char what[KEY_MAX * 2 + 64];
            (void)snprintf(what, sizeof(what), "\"%s\" is no section", key);
            return complain(w, line, what);
        }
        if (r < 0)
            return r;
    }
}

static int walk_document(struct config_document_walk *w)
{
    if (document_next(w) < 0) /* stream start */
        return -1;
    if (document_next(w) < 0)
        return -1;
    if (w->event.type == YAML_STREAM_END_EVENT) /* nothing but comments */
        return 0;
    if (document_next(w) < 0)
        return -1;
    if (w->event.type == YAML_SCALAR_EVENT && document_scalar(w).n == 0)
        ;
    else if (w->event.type != YAML_MAPPING_START_EVENT)
        return complain(w, w->event.start_mark.line, "expected keys and values");
    else if (walk_mapping(w, "", 0) < 0)
        return -1;
    if (document_next(w) < 0 || document_next(w) < 0) /* document end, then the stream's */
        return -1;
    if (w->event.type != YAML_STREAM_END_EVENT)
        return complain(w, w->event.start_mark.line, "one document only");
    return 0;
}

int document_walk(const char *name, struct str text, bool (*is_section)(struct str key), document_fn fn, void *ctx,
                  struct err *err)
{
    struct config_document_walk w = {
        .name = name, .text = text, .is_section = is_section, .fn = fn, .ctx = ctx, .err = err, .seen = MAP_INIT};
    if (text.n == 0)
        return 0;
    if (!yaml_parser_initialize(&w.parser))
        return err_errno(err, ENOMEM, "read %s", name);
    yaml_parser_set_input_string(&w.parser, (const unsigned char *)text.p, text.n);
    int r = walk_document(&w);
    yaml_event_delete(&w.event);
    yaml_parser_delete(&w.parser);
    map_fini(&w.seen);
    return r;
}
