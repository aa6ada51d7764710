/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a person sees on stderr while the base template is built: how long, in which phase, how much is unpacked. On a
 * terminal one line that is renewed each second, else a line with each phase and every 5 s. Phases are read off the
 * builder's own messages ("I: ..."); its warnings and errors ("W: ...", "E: ...") go through. What else comes is of the
 * programs that it runs: logged at debug, and the end of it shown when something failed.
 */
#pragma once

#include "base/clock.h"

enum { PROGRESS_LINE_MAX = 512, PROGRESS_KEPT_MAX = 16 * 1024 };

struct progress {
    int fd; /* borrowed: where it is shown */
    bool is_terminal;
    usec_t since, shown;
    uint64_t bytes; /* unpacked */
    const char *phase;
    char line[PROGRESS_LINE_MAX]; /* of a message that is not all there yet, or its first part */
    size_t n;
    bool is_rest;                                               /* `line` continues one that was dealt with */
    enum { PROGRESS_INFO, PROGRESS_SHOWN, PROGRESS_KEPT } kind; /* of `line` */
    char kept[PROGRESS_KEPT_MAX];                               /* the end of what may say why something failed */
    size_t kept_n;
};

void progress_init(struct progress *p, int fd, bool is_terminal);
void progress_messages(struct progress *p, struct str text); /* as it comes from the builder, in pieces of any size */
void progress_bytes(struct progress *p, uint64_t more);
void progress_show(struct progress *p);         /* when it is time to */
void progress_end(struct progress *p, bool ok); /* shows the rest, and a last line, which stays */
