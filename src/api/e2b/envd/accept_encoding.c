/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/accept_encoding.h"
#include "http/message.h"

/* Thousandths; 1000 without a "q". */
static int quality(struct str params)
{
    struct str name, value;
    int thousandths = 1000;
    while (http_param_next(&params, &name, &value)) {
        int scale = 1000;
        if (!str_eq_nocase(name, STR("q")))
            continue;
        thousandths = 0;
        for (size_t i = 0; i < value.n && scale; i++) {
            if (value.p[i] == '.')
                continue;
            if (value.p[i] < '0' || value.p[i] > '9')
                break;
            thousandths += (value.p[i] - '0') * scale;
            scale /= 10;
        }
    }
    return thousandths;
}

static bool next_coding(struct str *rest, struct str *ret_coding, int *ret_quality)
{
    struct str element, coding;
    if (!str_split(rest, ',', &element))
        return false;
    if (!str_split(&element, ';', &coding))
        coding = STR("");
    *ret_coding = str_trim(coding);
    *ret_quality = element.p ? quality(element) : 1000;
    return true;
}

bool accept_encoding_allows_identity(struct str value)
{
    bool named = false, allowed = true, others = true;
    struct str coding;
    int q;
    while (next_coding(&value, &coding, &q)) {
        if (str_eq_nocase(coding, STR("identity"))) {
            named = true;
            allowed = q > 0;
        } else if (str_eq(coding, STR("*"))) {
            others = q > 0;
        }
    }
    return named ? allowed : others;
}

enum accept_encoding accept_encoding_choose(struct str value)
{
    bool identity = accept_encoding_allows_identity(value);
    enum accept_encoding best = identity ? ACCEPT_IDENTITY : ACCEPT_NONE;
    struct str coding;
    int q, best_q = 0;
    while (next_coding(&value, &coding, &q)) {
        if (q <= best_q)
            continue;
        if (str_eq_nocase(coding, STR("gzip")))
            best = ACCEPT_GZIP;
        else if (str_eq_nocase(coding, STR("identity")))
            best = ACCEPT_IDENTITY;
        else if (str_eq(coding, STR("*")))
            best = identity ? ACCEPT_IDENTITY : ACCEPT_GZIP;
        else
            continue;
        best_q = q;
    }
    return best;
}
