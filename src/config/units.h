/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantities as people write them, in the configuration and on the command line. Whole-string; -EINVAL for anything
 * that is not understood, -ERANGE when the value does not fit.
 */
#pragma once

#include "base/str.h"

/* Bytes: "512MiB", "512M", "1.5G", "4096". K, M, G, T with or without "i" or "iB" count in 1024s, KB, MB, GB, TB in
 * 1000s. */
int unit_parse_size(struct str s, uint64_t *ret_bytes) WARN_UNUSED;

/* Milliseconds: "250ms", "90s", "5m", "1h30m", "2d"; a number alone counts seconds. */
int unit_parse_duration(struct str s, uint64_t *ret_ms) WARN_UNUSED;

/* Thousandths of a CPU: "2", "1.5", "0.25". */
int unit_parse_cpus(struct str s, uint32_t *ret_milli) WARN_UNUSED;

enum { UNIT_TEXT_MAX = 32 };
void unit_format_size(uint64_t bytes, char ret_text[static UNIT_TEXT_MAX]);  /* "512 MiB", "1.5 GiB" */
void unit_format_duration(uint64_t ms, char ret_text[static UNIT_TEXT_MAX]); /* "5m", "1h 30m", "42s", "250ms" */
