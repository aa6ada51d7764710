/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static const char *process_name = "cove";
static enum log_level least_level = LOG_INFO;

void log_init(const char *process, enum log_level least)
{
    process_name = process;
    least_level = least;
}

void log_msg(enum log_level level, const char *fmt, ...)
{
    static const char *const names[] = {"debug", "info", "warning", "error"};
    static const char hex[] = "0123456789abcdef";
    if (level < least_level)
        return;
    char text[1024], line[4096], when[CLOCK_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    clock_format(clock_real(), 3, when);
    size_t n = (size_t)snprintf(line, 256, "%s %s %s: ", when, names[level], process_name);
    for (const char *p = text; *p && n + 5 < sizeof(line); p++) {
        unsigned char c = (unsigned char)*p;
        if (c >= 0x20 && c < 0x7f) {
            line[n++] = (char)c;
        } else {
            line[n++] = '\\';
            line[n++] = 'x';
            line[n++] = hex[c >> 4];
            line[n++] = hex[c & 15];
        }
    }
    line[n++] = '\n';
    /* Nothing sensible is left to do when stderr is gone. */
    ssize_t ignored UNUSED = write(STDERR_FILENO, line, n);
}
