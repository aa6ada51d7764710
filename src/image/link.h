/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the half that fetches and the half that unpacks: a pipe of frames down, a seqpacket socket of notes up.
 * Neither believes the other: what comes is of fixed size or bounded, and text of notes is shown, never read.
 *
 *   down: LINK_LAYER, LINK_DATA..., LINK_LAYER_END for each layer, then LINK_FINISH
 *   up:   NOTE_WARNING at any time; NOTE_LAYER after each layer; NOTE_FINISHED, or NOTE_FAILED, as the last
 */
#pragma once

#include "base/err.h"

enum { LINK_DATA_MAX = 256 * 1024, LINK_PIPE_BYTES = 1024 * 1024 };

enum link_kind { LINK_LAYER = 1, LINK_DATA, LINK_LAYER_END, LINK_FINISH };

struct link_frame {
    uint32_t kind; /* enum link_kind */
    uint32_t n;    /* bytes that follow: 1 to LINK_DATA_MAX of LINK_DATA, else 0 */
};

enum note_kind { NOTE_WARNING = 1, NOTE_LAYER, NOTE_FINISHED, NOTE_FAILED };

struct link_note {
    uint32_t kind;           /* enum note_kind */
    uint32_t code;           /* enum err_code of NOTE_FAILED */
    uint64_t bytes, entries; /* so far */
    char text[248];
};

/* ---- the end that feeds ---- */

struct image_feed {
    int data_fd, notes_fd;       /* borrowed; both blocking */
    bool (*canceled)(void *ctx); /* asked while waiting */
    void (*warn)(void *ctx, const char *text);
    void *ctx;
    uint64_t entries; /* so far, as the other half says */
};

int feed_layer(struct image_feed *f, struct err *err) WARN_UNUSED;
int feed_data(struct image_feed *f, const void *p, size_t n, struct err *err) WARN_UNUSED;
int feed_layer_end(struct image_feed *f, struct err *err) WARN_UNUSED; /* returns when the layer is applied */
int feed_finish(struct image_feed *f, struct err *err) WARN_UNUSED;

/* ---- the end that unpacks ---- */

struct unpack_config {
    int data_fd, notes_fd, root_fd;
    uint64_t max_bytes, max_entries;
};

/* Applies what comes until LINK_FINISH; returns the exit code. */
int unpack_run(const struct unpack_config *config);
