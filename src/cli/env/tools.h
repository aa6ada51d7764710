/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tools of `cove mcp` that are about the repository that it was started in, where the service sees none: each is a
 * `cove env` of its own, with the rights of whoever started `cove mcp`. None applies anything. environment_source,
 * where a client says it, must be that repository.
 */
#pragma once

#include "base/buf.h"
#include "base/json.h"
#include "cli/command.h"

enum { TOOLS_OUTPUT_MAX = 64 << 20, TOOLS_TEXT_MAX = 48 * 1024 };

struct tools_run {
    pid_t pid; /* 0: none */
    int out;   /* to read from; -1: it ended */
    int err;
    struct buf said;
    uint64_t offset;
    bool is_json;
};

/* Puts them into the service's list, in place of those of the same name. */
void tools_describe(json_t *list);

/* 1: begun, for tools_read() when run->out can be read; 0: none of these; -1: ctx->err. */
int tools_start(struct context *ctx, const char *top, const char *name, const json_t *args,
                struct tools_run *ret_run) WARN_UNUSED;
bool tools_read(struct tools_run *run); /* true: it has ended */
/* The result of tools/call. Ends the run. */
json_t *tools_result(struct tools_run *run);
void tools_end(struct tools_run *run); /* kills what still runs */
