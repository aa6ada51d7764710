/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/clock.h"

#include <unistd.h>

static const char *process_name = "cove";
static enum log_level least_level = LOG_INFO;
static bool is_json;

void log_init(const char *process, enum log_level least)
{
    process_name = process;
    least_level = least & ~(unsigned)LOG_AS_JSON;
    is_json = least & LOG_AS_JSON;
}

void log_msg(enum log_level level, const char *fmt, ...)
{
    static const char *const names[] = {"debug", "info", "warning", "error"};
    static const char hex[] = "0123456789abcdef";
    if (level < least_level)
        return;
    char text[1024], line[4096], when[CLOCK_TEXT_MAX];
    FORMAT_ARGS(text, fmt);
    clock_format(clock_real(), 3, when);
    size_t n =
        (size_t)(is_json ? snprintf(line, 256, "{\"time\":\"%s\",\"level\":\"%s\",\"process\":\"%s\",\"message\":\"",
                                    when, names[level], process_name)
                         : snprintf(line, 256, "%s %s %s: ", when, names[level], process_name));
    for (const char *p = text; *p && n + 9 < sizeof(line); p++) {
        unsigned char c = (unsigned char)*p;
        bool is_plain = c >= 0x20 && c < 0x7f, is_quoted = is_json && (c == '"' || c == '\\');
        if (!is_plain || is_quoted)
            line[n++] = '\\';
        if (is_plain) {
            line[n++] = (char)c;
            continue;
        }
        line[n++] = is_json ? 'u' : 'x';
        if (is_json)
            line[n++] = '0', line[n++] = '0';
        line[n++] = hex[c >> 4];
        line[n++] = hex[c & 15];
    }
    if (is_json)
        line[n++] = '"', line[n++] = '}';
    line[n++] = '\n';
    /* Nothing sensible is left to do when stderr is gone. */
    ssize_t ignored UNUSED = write(STDERR_FILENO, line, n);
}
