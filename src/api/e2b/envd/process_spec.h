/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of process.Process as what the core wants to know. All strings point into the JSON. ERR_INVALID_ARGUMENT, or
 * ERR_UNIMPLEMENTED where a oneof is empty. */
#pragma once

#include "api/kit/json_read.h"
#include "sandbox/exec/exec.h"

/* {"process":{"cmd","args","envs","cwd"},"pty":{"size":{"cols","rows"}},"tag","stdin"} */
int process_start_read(const json_t *message, struct arena *arena, struct exec_spec *ret_spec,
                       struct err *err) WARN_UNUSED;

/* {"process":{"pid"|"tag"}} */
int process_select_read(const json_t *message, struct exec_select *ret_select, struct err *err) WARN_UNUSED;

/* {"input":{"stdin"|"pty"}}: base64 still */
int process_input_read(const json_t *message, bool *ret_pty, struct str *ret_base64, struct err *err) WARN_UNUSED;

/* {"signal":"SIGNAL_SIGTERM"|15|…}; 15 and 9 only */
int process_signal_read(const json_t *message, int *ret_signal, struct err *err) WARN_UNUSED;

/* {"pty":{"size":{"cols","rows"}}}: 1, 0 without pty, -1 */
int process_size_read(const json_t *message, uint16_t *ret_cols, uint16_t *ret_rows, struct err *err) WARN_UNUSED;
