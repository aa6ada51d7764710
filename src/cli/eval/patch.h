/* SPDX-License-Identifier: Apache-2.0 */
/* What patch.c and patch_image.c share: a sandbox in which commands run as root, for so long at most. It ends soon
 * after whoever holds it. */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "cli/eval/eval.h"

enum { PATCH_OUTPUT_MAX = 32 << 20, PATCH_WHY_MAX = 400, PATCH_SETUP_S = 3600 };

struct patch_box {
    struct eval *e;
    struct service *s;
    char *id;
    usec_t until, renew_at;
    bool is_late;
    struct buf out, err;
};

int patch_box_open(struct patch_box *b, const char *template, bool has_network) WARN_UNUSED;
void patch_box_close(struct patch_box *b);

/* What it writes is in b->out and b->err. *ret_code: as shells say it. -1: ctx->err; b->is_late: its time was up. */
int patch_exec(struct patch_box *b, char *const *argv, const char *cwd, int stdin_fd, uint64_t seconds,
               uint32_t *ret_code, bool *ret_dropped) WARN_UNUSED;
/* A verb of patch.sh. */
int patch_sh(struct patch_box *b, const char *verb, const char *const *args, size_t n, int stdin_fd,
             uint32_t *ret_code) WARN_UNUSED;

/* With the last line of its complaint. */
void patch_why(const struct patch_box *b, const char *what, char ret_why[static PATCH_WHY_MAX]);

const char *patch_workdir(const json_t *problem);

/* Makes the images that aren't there yet; what one is called. */
int patch_prepare(struct eval *e) WARN_UNUSED;
void patch_image_name(const struct eval *e, const json_t *problem, char ret_name[static 48]);
