/* SPDX-License-Identifier: Apache-2.0 */
#include "image/registry/challenge.h"

static void skip_blanks(struct str *s)
{
    while (s->n > 0 && (s->p[0] == ' ' || s->p[0] == '\t'))
        *s = str_n(s->p + 1, s->n - 1);
}

static struct str challenge_take_token(struct str *s)
{
    struct str token = str_n(s->p, str_span(*s, "A-Za-z0-9!#$%&'*+.^_`|~-"));
    *s = str_sub(*s, token.n);
    return token;
}

/* A token or a quoted string into a value of bounded size. */
static bool take_value(struct str *s, char ret_value[static CHALLENGE_VALUE_MAX])
{
    size_t n = 0;
    if (s->n == 0 || s->p[0] != '"') {
        struct str token = challenge_take_token(s);
        if (token.n == 0 || token.n >= CHALLENGE_VALUE_MAX)
            return false;
        memcpy(ret_value, token.p, token.n);
        ret_value[token.n] = '\0';
        return true;
    }
    for (size_t i = 1; i < s->n; i++) {
        char c = s->p[i];
        if (c == '"') {
            ret_value[n] = '\0';
            *s = str_n(s->p + i + 1, s->n - i - 1);
            return true;
        }
        if (c == '\\' && ++i < s->n)
            c = s->p[i];
        if ((unsigned char)c < 0x20 || c == 0x7f || n + 1 >= CHALLENGE_VALUE_MAX)
            return false;
        ret_value[n++] = c;
    }
    return false;
}

static char *parameter(struct challenge *c, struct str name)
{
    if (str_eq_nocase(name, STR("realm")))
        return c->realm;
    if (str_eq_nocase(name, STR("service")))
        return c->service;
    return str_eq_nocase(name, STR("scope")) ? c->scope : NULL;
}

/* Parameters up to the end or to what can only be the next challenge: a token that no "=" follows. */
static bool take_parameters(struct str *s, struct challenge *c)
{
    char value[CHALLENGE_VALUE_MAX];
    for (;;) {
        struct str before;
        do {
            skip_blanks(s);
            if (s->n == 0 || s->p[0] != ',')
                break;
            *s = str_n(s->p + 1, s->n - 1);
        } while (true);
        before = *s;
        if (s->n == 0)
            return true;
        struct str name = challenge_take_token(s);
        skip_blanks(s);
        if (name.n == 0)
            return false;
        if (s->n == 0 || s->p[0] != '=') {
            *s = before;
            return true;
        }
        *s = str_n(s->p + 1, s->n - 1);
        skip_blanks(s);
        if (!take_value(s, value))
            return false;
        char *to = parameter(c, name);
        if (to)
            memcpy(to, value, strlen(value) + 1);
    }
}

void challenge_parse(struct str header, struct challenge *ret_challenge)
{
    struct challenge best = {.scheme = CHALLENGE_NONE};
    struct str rest = header;
    for (skip_blanks(&rest); rest.n > 0; skip_blanks(&rest)) {
        struct challenge c = {.scheme = CHALLENGE_NONE};
        struct str scheme = challenge_take_token(&rest);
        if (scheme.n == 0 || (rest.n > 0 && rest.p[0] != ' ' && rest.p[0] != '\t' && rest.p[0] != ',') ||
            !take_parameters(&rest, &c)) {
            best.scheme = CHALLENGE_NONE;
            break;
        }
        if (str_eq_nocase(scheme, STR("Bearer")) && c.realm[0])
            c.scheme = CHALLENGE_BEARER;
        else if (str_eq_nocase(scheme, STR("Basic")))
            c.scheme = CHALLENGE_BASIC;
        if (c.scheme > best.scheme)
            best = c;
    }
    if (best.scheme == CHALLENGE_NONE)
        best = (struct challenge){.scheme = CHALLENGE_NONE};
    *ret_challenge = best;
}
