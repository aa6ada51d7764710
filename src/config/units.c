/* SPDX-License-Identifier: Apache-2.0 */
#include "config/units.h"

/* Cuts a decimal number with up to 3 digits of fraction off the front, in thousandths. */
static int take_number(struct str *s, uint64_t *ret_thousandths)
{
    uint64_t value = 0;
    size_t digits = 0, fraction = 0;
    bool point = false;
    while (s->n > 0) {
        char c = s->p[0];
        if (c == '.' && !point && digits > 0) {
            point = true;
        } else if (c >= '0' && c <= '9') {
            if (point && ++fraction > 3)
                return -EINVAL;
            if (value > (UINT64_MAX / 1000 - 9) / 10)
                return -ERANGE;
            value = value * 10 + (uint64_t)(c - '0');
            digits++;
        } else {
            break;
        }
        *s = str_sub(*s, 1);
    }
    if (digits == 0 || (point && fraction == 0))
        return -EINVAL;
    for (; fraction < 3; fraction++) {
        if (value > UINT64_MAX / 10)
            return -ERANGE;
        value *= 10;
    }
    *ret_thousandths = value;
    return 0;
}

static int scale(uint64_t thousandths, uint64_t unit, uint64_t *ret_value)
{
    uint64_t product;
    if (__builtin_mul_overflow(thousandths, unit, &product)) {
        /* Large whole numbers: divide first, they lose nothing. */
        if (thousandths % 1000 != 0 || __builtin_mul_overflow(thousandths / 1000, unit, &product))
            return -ERANGE;
        *ret_value = product;
        return 0;
    }
    *ret_value = product / 1000;
    return 0;
}

int unit_parse_size(struct str s, uint64_t *ret_bytes)
{
    static const char prefixes[] = "KMGT";
    uint64_t number, unit = 1, bytes;
    int r = take_number(&s, &number);
    if (r < 0)
        return r;

    if (s.n > 0 && !str_eqc(s, "B")) {
        size_t power = 0;
        char c = s.p[0] == 'k' || s.p[0] == 'm' || s.p[0] == 'g' || s.p[0] == 't' ? (char)(s.p[0] - 32) : s.p[0];
        while (power < 4 && prefixes[power] != c)
            power++;
        if (power == 4)
            return -EINVAL;
        struct str suffix = str_sub(s, 1);
        uint64_t base = 1024;
        if (str_eqc(suffix, "B"))
            base = 1000;
        else if (suffix.n > 0 && !str_eqc(suffix, "i") && !str_eqc(suffix, "iB"))
            return -EINVAL;
        for (size_t i = 0; i <= power; i++)
            unit *= base;
    }
    if (unit == 1 && number % 1000 != 0)
        return -EINVAL;
    r = scale(number, unit, &bytes);
    if (r < 0)
        return r;
    *ret_bytes = bytes;
    return 0;
}

int unit_parse_duration(struct str s, uint64_t *ret_ms)
{
    static const struct {
        const char *name;
        uint64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    uint64_t total = 0, smallest = UINT64_MAX;
    bool first = true;
    do {
        uint64_t number, part;
        int r = take_number(&s, &number);
        if (r < 0)
            return r;
        size_t n = 0;
        while (n < s.n && s.p[n] >= 'a' && s.p[n] <= 'z')
            n++;
        uint64_t unit = 0;
        if (n == 0 && first && s.n == 0)
            unit = 1000;
        for (size_t i = 0; i < ARRAY_SIZE(units); i++)
            if (str_eqc(str_n(s.p, n), units[i].name))
                unit = units[i].ms;
        if (unit == 0 || unit >= smallest) /* "1m2h" is a slip */
            return -EINVAL;
        if (unit == 1 && number % 1000 != 0)
            return -EINVAL;
        smallest = unit;
        r = scale(number, unit, &part);
        if (r < 0)
            return r;
        if (__builtin_add_overflow(total, part, &total))
            return -ERANGE;
        s = str_sub(s, n);
        first = false;
    } while (s.n > 0);
    *ret_ms = total;
    return 0;
}

int unit_parse_cpus(struct str s, uint32_t *ret_milli)
{
    uint64_t number;
    int r = take_number(&s, &number);
    if (r < 0)
        return r;
    if (s.n > 0)
        return -EINVAL;
    if (number > UINT32_MAX)
        return -ERANGE;
    *ret_milli = (uint32_t)number;
    return 0;
}

void unit_format_size(uint64_t bytes, char ret_text[static UNIT_TEXT_MAX])
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t power = 0;
    double value = (double)bytes;
    while (power < 4 && value >= 1024) {
        value /= 1024;
        power++;
    }
    bool whole = power == 0 || (double)(uint64_t)value == value || value >= 100;
    (void)snprintf(ret_text, UNIT_TEXT_MAX, whole ? "%.0f %s" : "%.1f %s", value, names[power]);
}

void unit_format_duration(uint64_t ms, char ret_text[static UNIT_TEXT_MAX])
{
    uint64_t s = ms / 1000, m = s / 60, h = m / 60, d = h / 24;
    if (ms < 1000)
        (void)snprintf(ret_text, UNIT_TEXT_MAX, "%ums", (unsigned)ms);
    else if (m == 0 || (m < 60 && s % 60 == 0))
        (void)snprintf(ret_text, UNIT_TEXT_MAX, "%u%c", (unsigned)(m ? m : s), m ? 'm' : 's');
    else if (h == 0)
        (void)snprintf(ret_text, UNIT_TEXT_MAX, "%um %us", (unsigned)m, (unsigned)(s % 60));
    else if (d == 0 && m % 60 != 0)
        (void)snprintf(ret_text, UNIT_TEXT_MAX, "%uh %um", (unsigned)h, (unsigned)(m % 60));
    else if (d == 0)
        (void)snprintf(ret_text, UNIT_TEXT_MAX, "%uh", (unsigned)h);
    else if (h == 24)
        (void)snprintf(ret_text, UNIT_TEXT_MAX, "24h"); /* "at most 24h" rather than "1d" */
    else if (h % 24 != 0)
        (void)snprintf(ret_text, UNIT_TEXT_MAX, "%llud %uh", (unsigned long long)d, (unsigned)(h % 24));
    else
        (void)snprintf(ret_text, UNIT_TEXT_MAX, "%llud", (unsigned long long)d);
}
