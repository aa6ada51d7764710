/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/policy_parse.h"

/* Fields by which a message is framed or routed are not for setting. */
static bool is_settable(const char *name)
{
    static const char fixed[] = "connection content-length expect host keep-alive te trailer transfer-encoding upgrade";
    return str_word(str_of(name), fixed) < 0 && strncmp(name, "proxy-", 6) != 0;
}

static bool is_secret_name(struct str name)
{
    return name.n > 0 && name.n <= POLICY_SECRET_NAME_MAX && str_set_has("A-Za-z_", name.p[0]) &&
           str_is_of(name, "A-Za-z0-9_.-");
}

static bool is_base64(struct str text)
{
    return text.n > 0 && str_is_of(text, "A-Za-z0-9+/=");
}

/* A header's value with ${secret:NAME}, ${sealed:BASE64} and $$ in it, and no other $. */
static bool is_template(struct str text)
{
    if (text.n == 0 || text.n > POLICY_VALUE_MAX || str_trim(text).n != text.n)
        return false;
    while (text.n > 0) {
        struct str inside;
        ssize_t end;
        if ((unsigned char)text.p[0] < ' ' || text.p[0] == 0x7f)
            return false;
        if (text.p[0] != '$') {
            text = str_sub(text, 1);
            continue;
        }
        if (str_starts(text, STR("$$"))) {
            text = str_sub(text, 2);
            continue;
        }
        end = str_find_char(text, '}');
        if (end < 0)
            return false;
        inside = str_n(text.p, (size_t)end);
        if (!(str_starts(inside, STR("${secret:")) && is_secret_name(str_sub(inside, 9))) &&
            !(str_starts(inside, STR("${sealed:")) && is_base64(str_sub(inside, 9))))
            return false;
        text = str_sub(text, (size_t)end + 1);
    }
    return true;
}

static char *in_lower_case(struct parse *p, struct str text)
{
    char *copy = arena_strndup(&p->policy->arena, text.p, text.n);
    for (char *c = copy; *c; c++)
        *c = str_lower(*c);
    return copy;
}

static int check_member(struct parse *p, const json_t *object, const char *name, struct str *ret_text)
{
    parse_enter(p, name);
    if (parse_string(p, json_object_get(object, name), ret_text) < 0)
        return -1;
    parse_leave(p);
    return 0;
}

static int parse_header(struct parse *p, const json_t *json, const struct injection *in, size_t i,
                        struct policy_header *header)
{
    struct str name = STR_NULL, value = STR_NULL;
    char *copy;
    if (parse_check_object(p, json, "name value") < 0 || check_member(p, json, "name", &name) < 0 ||
        check_member(p, json, "value", &value) < 0)
        return -1;
    copy = in_lower_case(p, name);
    if (!parse_is_token(name) || name.n > POLICY_HEADER_NAME_MAX || !is_settable(copy))
        return parse_refuse(p, "the name is not that of a header that can be set");
    for (size_t k = 0; k < i; k++)
        if (strcmp(copy, in->what.headers[k].name) == 0)
            return parse_refuse(p, "has the same name as headers[%zu]", k);
    if (!is_template(value))
        return parse_refuse(
            p, "the value may hold visible characters and blanks, ${secret:NAME}, ${sealed:...} and $$ for a $");
    header->name = copy;
    header->value = arena_strndup(&p->policy->arena, value.p, value.n);
    return 0;
}

/* Visible, without " and \. */
static bool is_sentinel(struct str text, size_t least)
{
    return text.n >= least && text.n <= POLICY_SENTINEL_MAX && str_is_of(text, "!#-[]-~");
}

/* "headers": the only ones in which the sentinel is replaced. */
static int parse_places(struct parse *p, const json_t *json, struct policy_placeholder *placeholder)
{
    const char **list;
    parse_enter(p, "headers");
    if (parse_check_array(p, json, 1, POLICY_HEADERS_MAX) < 0)
        return -1;
    placeholder->n_headers = json_array_size(json);
    placeholder->headers = list = arena_alloc(&p->policy->arena, placeholder->n_headers * sizeof(*list));
    for (size_t i = 0; parse_at(p, json, i); i++) {
        struct str name;
        if (parse_string(p, json_array_get(json, i), &name) < 0)
            return -1;
        if (!parse_is_token(name) || name.n > POLICY_HEADER_NAME_MAX)
            return parse_refuse(p, "is not the name of a header");
        list[i] = in_lower_case(p, name);
    }
    parse_leave(p);
    return 0;
}

/* A set of words, as bits: "in", "schemes". */
static int parse_words(struct parse *p, const json_t *object, const char *member, const char *const *words, size_t n,
                       unsigned *ret_bits)
{
    const json_t *json = json_object_get(object, member);
    struct str text;
    if (!json)
        return 0;
    *ret_bits = 0;
    parse_enter(p, member);
    if (parse_check_array(p, json, 1, n) < 0)
        return -1;
    for (size_t i = 0; parse_at(p, json, i); i++) {
        size_t k = 0;
        if (parse_string(p, json_array_get(json, i), &text) < 0)
            return -1;
        while (k < n && !str_eqc(text, words[k]))
            k++;
        if (k == n || *ret_bits & (1u << k))
            return parse_refuse(p, "%s", k == n ? "is none of those that are known" : "is there twice");
        *ret_bits |= 1u << k;
    }
    parse_leave(p);
    return 0;
}

static int parse_placeholder_value(struct parse *p, const json_t *json, struct policy_placeholder *placeholder)
{
    struct str text = STR_NULL;
    if (!json_object_get(json, "secret") == !json_object_get(json, "value"))
        return parse_refuse(p, "needs \"secret\" or \"value\", and not both");
    if (json_object_get(json, "value")) {
        if (check_member(p, json, "value", &text) < 0)
            return -1;
        if (!is_template(text))
            return parse_refuse(p, "the value may hold what that of a header may");
        placeholder->secret = NULL;
        placeholder->value = arena_strndup(&p->policy->arena, text.p, text.n);
        return 0;
    }
    if (check_member(p, json, "secret", &text) < 0)
        return -1;
    if (!is_secret_name(text))
        return parse_refuse(p, "the secret must be a name of letters, digits and _.-, at most %d",
                            POLICY_SECRET_NAME_MAX);
    placeholder->secret = arena_strndup(&p->policy->arena, text.p, text.n);
    placeholder->value = arena_printf(&p->policy->arena, "${secret:%s}", placeholder->secret);
    return 0;
}

static int parse_placeholder(struct parse *p, const json_t *json, const struct injection *in, size_t i,
                             struct policy_placeholder *placeholder)
{
    const json_t *headers = json_object_get(json, "headers");
    const int least = json_object_get(json, "in") ? POLICY_SENTINEL_SHORT : POLICY_SENTINEL_MIN;
    struct str sentinel = STR_NULL;
    *placeholder = (struct policy_placeholder){.places = POLICY_IN_HEADER};
    if (parse_check_object(p, json, "sentinel secret value in headers") < 0 ||
        check_member(p, json, "sentinel", &sentinel) < 0)
        return -1;
    if (!is_sentinel(sentinel, (size_t)least))
        return parse_refuse(p, "the sentinel must be %d to %d visible characters without \" and \\", least,
                            POLICY_SENTINEL_MAX);
    if (parse_placeholder_value(p, json, placeholder) < 0 ||
        parse_words(p, json, "in", policy_places, POLICY_PLACES, &placeholder->places) < 0)
        return -1;
    for (size_t k = 0; k < i; k++)
        if (str_eqc(sentinel, in->what.placeholders[k].sentinel) &&
            (placeholder->places & in->what.placeholders[k].places))
            return parse_refuse(p, "its sentinel is that of placeholders[%zu]", k);
    placeholder->sentinel = arena_strndup(&p->policy->arena, sentinel.p, sentinel.n);
    return headers ? parse_places(p, headers, placeholder) : 0;
}

static int parse_headers(struct parse *p, const json_t *json, struct injection *in)
{
    struct policy_header *list;
    parse_enter(p, "headers");
    if (parse_check_array(p, json, 1, POLICY_HEADERS_MAX) < 0)
        return -1;
    in->what.headers = list = arena_alloc(&p->policy->arena, json_array_size(json) * sizeof(*list));
    in->what.n_headers = json_array_size(json);
    for (size_t i = 0; parse_at(p, json, i); i++)
        if (parse_header(p, json_array_get(json, i), in, i, &list[i]) < 0)
            return -1;
    parse_leave(p);
    return 0;
}

static int parse_placeholders(struct parse *p, const json_t *json, struct injection *in)
{
    struct policy_placeholder *own = p->policy->placeholders + p->policy->n_placeholders;
    parse_enter(p, "placeholders");
    if (parse_check_array(p, json, 1, POLICY_HEADERS_MAX) < 0)
        return -1;
    in->what.placeholders = own;
    in->what.n_placeholders = json_array_size(json);
    for (size_t i = 0; parse_at(p, json, i); i++)
        if (parse_placeholder(p, json_array_get(json, i), in, i, &own[i]) < 0)
            return -1;
    p->policy->n_placeholders += in->what.n_placeholders;
    parse_leave(p);
    return 0;
}

int parse_injection(struct parse *p, const json_t *json, struct injection *in)
{
    static const char *const schemes[] = {"https", "http"};
    unsigned by = 1;
    const json_t *headers = json_object_get(json, "headers"), *placeholders = json_object_get(json, "placeholders");
    if (parse_check_object(p, json, "host schemes ports methods path headers placeholders") < 0)
        return -1;
    parse_enter(p, "host");
    if (parse_target(p, json_object_get(json, "host"), &in->host) < 0)
        return -1;
    if (in->host.kind != TARGET_NAME && in->host.kind != TARGET_BELOW)
        return parse_refuse(p, "must be a name or \"*.name\": a secret is bound to its hosts");
    parse_leave(p);
    if (parse_words(p, json, "schemes", schemes, ARRAY_SIZE(schemes), &by) < 0 || parse_scope(p, json, &in->scope) < 0)
        return -1;
    in->by_tls = by & 1;
    in->by_plain = by & 2;
    if (!headers && !placeholders)
        return parse_refuse(p, "needs \"headers\" or \"placeholders\"");
    if (headers && parse_headers(p, headers, in) < 0)
        return -1;
    if (placeholders && parse_placeholders(p, placeholders, in) < 0)
        return -1;
    p->policy->intercepts |= in->by_tls;
    return 0;
}
