/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/hostname.h"

static bool hostname_is_label(struct str label)
{
    return label.n && label.n <= HOSTNAME_LABEL_MAX && label.p[0] != '-' && label.p[label.n - 1] != '-' &&
           str_is_of(label, "a-z0-9_-");
}

/* As inet_aton() and browsers count: decimal and octal, or "0x" with any number of digits behind it, none included. */
static bool is_number(struct str label)
{
    return str_starts(label, STR("0x")) ? str_is_hex(str_sub(label, 2)) : str_is_of(label, "0-9");
}

bool hostname_normalise(struct str text, char ret_name[static HOSTNAME_MAX + 1])
{
    char name[HOSTNAME_MAX + 1];
    struct str rest, label;
    size_t n_labels = 0;
    if (text.n > 0 && text.p[text.n - 1] == '.')
        text.n--;
    if (text.n == 0 || text.n > HOSTNAME_MAX)
        return false;
    for (size_t i = 0; i < text.n; i++)
        name[i] = str_lower(text.p[i]);
    name[text.n] = '\0';

    rest = str_n(name, text.n);
    for (ssize_t dot = 0; dot >= 0; rest = str_sub(rest, (size_t)dot + 1)) {
        dot = str_find_char(rest, '.');
        label = dot < 0 ? rest : str_n(rest.p, (size_t)dot);
        if (!hostname_is_label(label) || ++n_labels > HOSTNAME_LABELS_MAX)
            return false;
    }
    if (is_number(label))
        return false;
    memcpy(ret_name, name, text.n + 1);
    return true;
}

bool hostname_pattern_normalise(struct str text, char ret_pattern[static HOSTNAME_MAX + 3])
{
    char name[HOSTNAME_MAX + 1];
    if (str_eq(text, STR("*"))) {
        memcpy(ret_pattern, "*", 2);
        return true;
    }
    if (!str_starts(text, STR("*.")))
        return hostname_normalise(text, ret_pattern);
    if (!hostname_normalise(str_sub(text, 2), name))
        return false;
    ret_pattern[0] = '*';
    ret_pattern[1] = '.';
    memcpy(ret_pattern + 2, name, strlen(name) + 1);
    return true;
}
