/* SPDX-License-Identifier: Apache-2.0 */
/* Names of hosts, in the one form in which they are compared, judged, resolved and shown. */
#pragma once

#include "base/str.h"

enum { HOSTNAME_MAX = 253, HOSTNAME_LABEL_MAX = 63, HOSTNAME_LABELS_MAX = 32 };

/*
 * Lower case, one trailing dot cut off. Labels of letters, digits, '-' and '_', 1 to 63 bytes, neither first nor last
 * '-'. False: not a name: empty, too long, other bytes (NUL, '%', blanks, full-width dots, ...), or a last label that
 * is a number in any base, because that is a way to write an address ("127.1", "0x7f.1", "3325256770").
 * Internationalised names are given in their xn-- form.
 */
bool hostname_normalise(struct str text, char ret_name[static HOSTNAME_MAX + 1]);

/* A pattern is a name, "*.name" (one or more labels in front, never the name itself), or "*" (any). False: not a
 * pattern. */
bool hostname_pattern_normalise(struct str text, char ret_pattern[static HOSTNAME_MAX + 3]);
