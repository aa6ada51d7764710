/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <time.h>

static usec_t read_clock(clockid_t id)
{
    struct timespec ts;
    (void)clock_gettime(id, &ts);
    return (usec_t)ts.tv_sec * USEC_PER_SEC + (usec_t)ts.tv_nsec / 1000;
}

usec_t clock_mono(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

usec_t clock_real(void)
{
    return read_clock(CLOCK_REALTIME);
}

void clock_format(usec_t real, int digits, char ret_text[static CLOCK_TEXT_MAX])
{
    assert(digits >= 0 && digits <= 6);
    time_t t = (time_t)(real / USEC_PER_SEC);
    struct tm tm;
    (void)gmtime_r(&t, &tm);
    size_t n = strftime(ret_text, CLOCK_TEXT_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
    if (digits) {
        uint64_t fraction = real % USEC_PER_SEC;
        for (int i = 6; i > digits; i--)
            fraction /= 10;
        n += (size_t)snprintf(ret_text + n, CLOCK_TEXT_MAX - n, ".%0*llu", digits, (unsigned long long)fraction);
    }
    if (n + 1 < CLOCK_TEXT_MAX) {
        ret_text[n] = 'Z';
        ret_text[n + 1] = 0;
    }
}

static bool digits_at(struct str s, size_t at, size_t n, int *ret_v)
{
    int v = 0;
    if (at > s.n || s.n - at < n)
        return false;
    for (size_t i = at; i < at + n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        v = v * 10 + (s.p[i] - '0');
    }
    *ret_v = v;
    return true;
}

static int days_of(int year, int month)
{
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 ? 28 + leap : month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

int clock_parse(struct str s, usec_t *ret_real)
{
    int year, month, day, hour, min, sec;
    if (!digits_at(s, 0, 4, &year) || !digits_at(s, 5, 2, &month) || !digits_at(s, 8, 2, &day) ||
        !digits_at(s, 11, 2, &hour) || !digits_at(s, 14, 2, &min) || !digits_at(s, 17, 2, &sec))
        return -EINVAL;
    if (s.p[4] != '-' || s.p[7] != '-' || (s.p[10] != 'T' && s.p[10] != 't' && s.p[10] != ' ') || s.p[13] != ':' ||
        s.p[16] != ':')
        return -EINVAL;
    if (year < 1970 || month < 1 || month > 12 || day < 1 || day > days_of(year, month) || hour > 23 || min > 59 ||
        sec > 60)
        return -EINVAL;
    size_t at = 19;
    usec_t fraction = 0;
    if (at < s.n && s.p[at] == '.') {
        usec_t unit = USEC_PER_SEC / 10;
        size_t from = ++at;
        for (; at < s.n && s.p[at] >= '0' && s.p[at] <= '9'; at++, unit /= 10)
            fraction += unit * (usec_t)(s.p[at] - '0');
        if (at == from || at - from > 9)
            return -EINVAL;
    }
    int offset_min = 0;
    struct str zone = str_sub(s, at);
    if (zone.n == 1 && (zone.p[0] == 'Z' || zone.p[0] == 'z')) {
        offset_min = 0;
    } else {
        int oh, om;
        if (zone.n != 6 || (zone.p[0] != '+' && zone.p[0] != '-') || zone.p[3] != ':' || !digits_at(zone, 1, 2, &oh) ||
            !digits_at(zone, 4, 2, &om) || oh > 23 || om > 59)
            return -EINVAL;
        offset_min = (oh * 60 + om) * (zone.p[0] == '-' ? -1 : 1);
    }
    struct tm tm = {
        .tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day, .tm_hour = hour, .tm_min = min, .tm_sec = sec};
    int64_t t = (int64_t)timegm(&tm) - (int64_t)offset_min * 60;
    if (t < 0)
        return -EINVAL;
    *ret_real = (usec_t)t * USEC_PER_SEC + fraction;
    return 0;
}
