/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagnostics of our own processes on stderr, one line each: "<time> <level> <process>: <text>", or the same as a JSON
 * object. Control characters and non-ASCII bytes are escaped, because part of the text may come from a sandbox. Only
 * composition roots and the frame that decides log.
 */
#pragma once

#include "base/def.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum { LOG_AS_JSON = 4 }; /* may be added to the level that log_init() is given */

void log_init(const char *process, enum log_level least); /* process: a literal, borrowed for ever */
void log_msg(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);

#define log_debug(...) log_msg(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_msg(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_msg(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_msg(LOG_ERROR, __VA_ARGS__)
