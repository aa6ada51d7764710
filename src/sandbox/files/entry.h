/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes a file's entry as the agent describes it (wire/proto.h). Internal to src/sandbox. */
#pragma once

#include "sandbox/files/files.h"
#include "wire/frame.h"

enum { ENTRY_METADATA_MAX = 256 };

/* The entry and room for its list; strings stay borrowed from the payload. */
struct wire_entry {
    struct file_entry e;
    struct pair metadata[ENTRY_METADATA_MAX];
};

/* r->bad: there is not enough of it (yet). False: it is whole, but says what can't be. */
bool entry_get(struct wire_reader *r, struct wire_entry *ret_entry);
