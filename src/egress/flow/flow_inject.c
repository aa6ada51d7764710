/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secrets, in requests that were allowed. Values live in the request's arena, which is wiped, and are seen nowhere
 * else: events have the path that the client asked for. What a server says of them in the head of its answer is masked;
 * bodies of answers pass as they are (docs/NETWORK.md).
 *
 *  1. An injection applies when each reading of the request (flow_http.c) is one of its own: what is bound to one path
 *     or method goes to no other.
 *  2. Placeholders come first, headers behind: a value that was put in is not looked through.
 *  3. A value in a path is encoded, and the path is judged again (flow_http.c): no value leads to another one.
 *  4. A body is looked at when all of it is there, so nothing of a placeholder is missed between two reads. It isn't
 *     when it is compressed, multipart, no UTF-8, or longer than EXCHANGE_BODY_MAX: then placeholders go out as they
 *     are, which is nobody's secret.
 */
#include "base/mem.h"
#include "egress/flow/flow.h"
#include "egress/http/override.h"
#include "egress/http/substitute.h"
#include "egress/vault/vault.h"

enum { MASK_LEAST = 4, MASK_CODES = 4, MASK_FORMS = MASK_CODES + 2, SENTINEL_TOLD = 8 };
#define MASKED "[REDACTED]"

static_assert((int)POLICY_HEADERS_MAX <= (int)SUBSTITUTES_MAX, "each placeholder of an injection is a substitute");

struct injecting {
    struct flow *f;
    struct exchange_head *head;
    json_t *names;
    struct err *err;
    bool failed;
};

static void flow_inject_note(void *ctx, const struct policy_inject *what)
{
    struct flow_injections *in = ctx;
    size_t i = 0;
    while (i < in->n && in->all[i] != what)
        i++;
    if (i == in->n)
        in->all[in->n++] = what;
    in->seen[i]++;
}

void flow_injections(struct flow *f, const char *name, const struct flow_reading *readings, size_t n,
                     struct flow_injections *ret_in)
{
    size_t kept = 0;
    *ret_in = (struct flow_injections){.n = 0};
    for (size_t k = 0; k < n; k++) {
        struct policy_query q;
        AUTO_FREE char *method = mem_strndup(readings[k].method.p, readings[k].method.n);
        flow_query(f, name, &q);
        q.is_plain = !f->intercepted;
        q.method = method;
        q.path = readings[k].path;
        policy_each_inject(f->net->policy, &q, flow_inject_note, ret_in);
    }
    for (size_t i = 0; i < ret_in->n; i++)
        if (ret_in->seen[i] == n)
            ret_in->all[kept++] = ret_in->all[i];
    ret_in->n = kept;
}

bool flow_injections_same(const struct flow_injections *a, const struct flow_injections *b)
{
    bool is_same = a->n == b->n;
    for (size_t i = 0; is_same && i < a->n; i++)
        is_same = a->all[i] == b->all[i];
    return is_same;
}

/* ---- values ---- */

/* The value goes into the request's memory; what it was made in is wiped. */
static bool expand(struct injecting *i, const char *template, struct str *ret_value)
{
    AUTO_BUF struct buf b = BUF_INIT(SECRET_VALUE_MAX * 2);
    int r = vault_expand(i->f->net->egress->config.vault, str_of(i->f->net->sealed_for), str_of(template), &b, i->err);
    if (r == 0)
        *ret_value = arena_str(i->head->arena, buf_str(&b));
    if (b.data)
        mem_wipe(b.data, b.cap);
    i->failed |= r < 0;
    return r == 0;
}

static void flow_inject_name(struct injecting *i, const char *name)
{
    JSON_FOREACH (one, i->names)
        if (strcmp(json_string_value(one), name) == 0)
            return;
    (void)json_array_append_new(i->names, json_string(name));
}

/* Each place where the text holds one of these becomes its value. */
static void flow_inject_replace(struct injecting *i, const struct policy_placeholder *const *all, size_t n,
                                enum substitute_code code, size_t most, struct str *text)
{
    struct substitute found[SUBSTITUTES_MAX];
    size_t n_found = 0;
    for (size_t k = 0; k < n && !i->failed; k++) {
        struct substitute *one = &found[n_found];
        *one = (struct substitute){.placeholder = str_of(all[k]->sentinel)};
        if (!substitute_find(*text, one, 1) || !expand(i, all[k]->value, &one->value))
            continue;
        n_found++;
        flow_inject_name(i, all[k]->secret ? all[k]->secret : all[k]->sentinel);
    }
    if (!n_found || i->failed)
        return;
    AUTO_BUF struct buf b = BUF_INIT(most);
    if (substitute(*text, found, n_found, code, &b) < 0) {
        i->failed = true;
        (void)err_set(i->err, ERR_RESOURCE_EXHAUSTED, "a part of this request becomes too long with its secrets");
    } else {
        *text = arena_str(i->head->arena, buf_str(&b));
    }
    if (b.data)
        mem_wipe(b.data, b.cap);
}

/* Those that belong into this place, and into a field of that name. */
static size_t flow_inject_of(const struct policy_inject *what, enum policy_place place, struct str field,
                             const struct policy_placeholder *ret_all[static SUBSTITUTES_MAX])
{
    size_t n = 0;
    for (size_t p = 0; p < what->n_placeholders; p++) {
        const struct policy_placeholder *one = &what->placeholders[p];
        if ((one->places & place) && (!field.p || policy_placeholder_is_for(one, field)))
            ret_all[n++] = one;
    }
    return n;
}

/* ---- a request ---- */

static void flow_inject_target(struct injecting *i, const struct policy_inject *what)
{
    static const enum policy_place places[] = {POLICY_IN_PATH, POLICY_IN_QUERY};
    const struct policy_placeholder *all[SUBSTITUTES_MAX];
    struct str target = i->head->path;
    ssize_t end = str_find_char(target, '?');
    struct str parts[] = {end < 0 ? target : str_n(target.p, (size_t)end),
                          end < 0 ? STR_NULL : str_sub(target, (size_t)end + 1)};
    bool is_new = false;
    for (size_t k = 0; k < ARRAY_SIZE(parts) && !i->failed; k++) {
        const char *before = parts[k].p;
        if (parts[k].n)
            flow_inject_replace(i, all, flow_inject_of(what, places[k], STR_NULL, all), SUBSTITUTE_URL,
                                EXCHANGE_HEAD_MAX, &parts[k]);
        is_new |= parts[k].p != before;
    }
    if (is_new)
        i->head->path = str_of(
            arena_printf(i->head->arena, "%.*s%s%.*s", STR_ARG(parts[0]), end < 0 ? "" : "?", STR_ARG(parts[1])));
}

/* How the body is to be read; false: as it is. */
static bool body_code(const struct exchange_head *h, enum substitute_code *ret_code)
{
    struct str type = STR("");
    unsigned types = 0;
    for (size_t i = 0; i < h->n_fields; i++) {
        const struct http_header *f = &h->fields[i];
        if (str_eqc(f->name, "content-encoding") && f->value.n && !str_eq_nocase(f->value, STR("identity")))
            return false;
        if (str_eqc(f->name, "content-type")) {
            type = f->value;
            types++;
        }
    }
    return types <= 1 && substitute_code_of(type, ret_code);
}

static void inject(struct injecting *i, const struct policy_inject *what)
{
    const struct policy_placeholder *all[SUBSTITUTES_MAX];
    struct exchange_head *head = i->head;
    enum substitute_code code;
    struct str value;
    flow_inject_target(i, what);
    for (size_t h = 0; h < head->n_fields && !i->failed; h++) {
        struct http_header *field = &head->fields[h];
        if (override_of(field->name) == OVERRIDE_NONE) /* these were judged as they are */
            flow_inject_replace(i, all, flow_inject_of(what, POLICY_IN_HEADER, field->name, all), SUBSTITUTE_RAW,
                                EXCHANGE_HEAD_MAX, &field->value);
    }
    if (head->body_is == EXCHANGE_BODY_WHOLE && !i->failed && body_code(head, &code) && str_is_utf8(head->body))
        flow_inject_replace(i, all, flow_inject_of(what, POLICY_IN_BODY, STR_NULL, all), code, 2 * EXCHANGE_BODY_MAX,
                            &head->body);
    for (size_t h = 0; h < what->n_headers && !i->failed; h++)
        if (expand(i, what->headers[h].value, &value)) {
            exchange_set(head, str_of(what->headers[h].name), value);
            flow_inject_name(i, what->headers[h].name);
        }
}

bool flow_inject_wants_body(const struct exchange_head *h, const struct flow_injections *in)
{
    const struct policy_placeholder *all[SUBSTITUTES_MAX];
    enum substitute_code code;
    for (size_t k = 0; k < in->n; k++)
        if (flow_inject_of(in->all[k], POLICY_IN_BODY, STR_NULL, all))
            return h->body_is == EXCHANGE_BODY_UNREAD && body_code(h, &code);
    return false;
}

int flow_inject(struct flow *f, struct exchange_head *h, const struct flow_injections *in, json_t *names,
                struct err *err)
{
    struct injecting i = {.f = f, .head = h, .names = names, .err = err};
    for (size_t k = 0; k < in->n && !i.failed; k++)
        inject(&i, in->all[k]);
    return i.failed ? -1 : 0;
}

/* ---- what is told of it ---- */

static bool mentions(const struct exchange_head *h, const char *sentinel)
{
    struct str s = str_of(sentinel);
    bool found = memmem(h->path.p, h->path.n, s.p, s.n) != NULL;
    for (size_t i = 0; i < h->n_fields && !found; i++)
        found = memmem(h->fields[i].value.p, h->fields[i].value.n, s.p, s.n) != NULL;
    return found;
}

void flow_notice_misuse(struct flow *f, const struct exchange_head *h, const char *name)
{
    const struct policy_placeholder *all;
    size_t n = policy_sentinels(f->net->policy, &all);
    for (size_t i = 0; i < n; i++)
        if (strlen(all[i].sentinel) >= SENTINEL_TOLD && mentions(h, all[i].sentinel))
            report_misuse(f->net, all[i].secret ? all[i].secret : all[i].sentinel, name ? name : "", f->port);
}

/* ---- answers ---- */

struct masking {
    struct injecting i; /* its head: for the arena alone */
    struct http_header *fields;
    size_t n;
};

/* "%2F" as "%2f": some servers write that. */
static struct str mask_lower(struct arena *arena, struct str encoded)
{
    struct str lower = arena_str(arena, encoded);
    char *p = (char *)(uintptr_t)lower.p;
    for (size_t i = 0; i + 2 < lower.n; i += p[i] == '%' ? 3 : 1)
        for (size_t k = i + 1; p[i] == '%' && k < i + 3; k++)
            p[k] |= p[k] >= 'A' && p[k] <= 'F' ? 0x20 : 0;
    return lower;
}

/* In any form that it may have been sent in. */
static void mask_value(struct masking *m, struct str value)
{
    struct substitute all[MASK_FORMS];
    if (value.n < MASK_LEAST)
        return;
    for (unsigned code = 0; code < MASK_CODES; code++) {
        const struct substitute whole = {value, value};
        AUTO_BUF struct buf b = BUF_INIT(6 * SECRET_VALUE_MAX);
        if (substitute(value, &whole, 1, (enum substitute_code)code, &b) < 0)
            return;
        all[code] = (struct substitute){arena_str(m->i.head->arena, buf_str(&b)), STR(MASKED)};
        mem_wipe(b.data, b.cap);
    }
    for (unsigned i = 0; i < MASK_FORMS - MASK_CODES; i++) {
        static const enum substitute_code codes[] = {SUBSTITUTE_URL, SUBSTITUTE_FORM};
        all[MASK_CODES + i] = (struct substitute){mask_lower(m->i.head->arena, all[codes[i]].placeholder), STR(MASKED)};
    }
    for (size_t k = 0; k < m->n; k++) {
        AUTO_BUF struct buf b = BUF_INIT(4 * EXCHANGE_HEAD_MAX);
        if (!substitute_find(m->fields[k].value, all, MASK_FORMS))
            continue;
        bool fits = substitute(m->fields[k].value, all, MASK_FORMS, SUBSTITUTE_RAW, &b) == 0;
        m->fields[k].value = fits ? arena_str(m->i.head->arena, buf_str(&b)) : STR(MASKED);
    }
}

/* Each reference by itself: a server may leave out the "Bearer " in front of it. Text between them is no secret, unless
 * there is nothing else. */
static void mask_template(struct masking *m, const char *template)
{
    struct str value;
    const char *at = strstr(template, "${");
    if (!at && expand(&m->i, template, &value))
        mask_value(m, value);
    while (at) {
        const char *end = strchr(at, '}');
        if (!end)
            return;
        if (expand(&m->i, arena_strndup(m->i.head->arena, at, (size_t)(end - at) + 1), &value))
            mask_value(m, value);
        at = strstr(end, "${");
    }
}

void flow_mask_all(struct http_header *fields, size_t n)
{
    for (size_t k = 0; k < n; k++)
        fields[k].value = STR(MASKED);
}

void flow_mask(struct flow *f, const struct flow_request *r, struct arena *arena, struct http_header *fields, size_t n)
{
    struct err err;
    struct exchange_head head = {.arena = arena};
    struct masking m = {.i = {.f = f, .head = &head, .err = &err}, .fields = fields, .n = n};
    struct flow_injections in;
    char name[HOSTNAME_MAX + 1];
    if (!f->net->policy || !json_array_size(r->injected) || !hostname_normalise(str_of(r->authority), name))
        return;
    flow_injections(f, name, &(struct flow_reading){str_of(r->method), str_of(r->path)}, 1, &in);
    for (size_t k = 0; k < in.n; k++) {
        for (size_t h = 0; h < in.all[k]->n_headers; h++)
            mask_template(&m, in.all[k]->headers[h].value);
        for (size_t p = 0; p < in.all[k]->n_placeholders; p++)
            mask_template(&m, in.all[k]->placeholders[p].value);
    }
}
