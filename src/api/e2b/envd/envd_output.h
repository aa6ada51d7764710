/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of a process stream, each as one Connect envelope. Written without a JSON library: this is what every byte
 * of output passes through.
 */
#pragma once

#include "base/buf.h"
#include "sandbox/exec/exec.h"

void output_start(struct buf *b, uint32_t pid);
void output_data(struct buf *b, enum wire_channel channel, struct str bytes);
void output_exit(struct buf *b, const struct exec_exit *exit);
