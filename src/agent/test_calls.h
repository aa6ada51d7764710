/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the agent have in common: one rig for each test, and requests in one line. Whatever is not as said
 * fails the test. */
#pragma once

#include "agent/test_rig.h"

extern struct rig rig;

int rig_setup(void **state); /* for cmocka */
int rig_teardown(void **state);
#define TEST(name) cmocka_unit_test_setup_teardown(name, rig_setup, rig_teardown)

void assert_text(const struct buf *b, const char *want);

/* ---- processes ---- */

extern const struct exec_options as_root;

/* Runs a shell line to its end and compares its output. */
struct exit_info expect_output(const struct exec_options *o, const char *line, const char *want);

/* A request about the process `pid`; rest: what follows the selection, may be NULL. */
uint32_t select_pid(uint8_t verb, uint32_t pid, const struct buf *rest);
uint32_t open_input(uint32_t pid, uint8_t channel, const void *p, size_t n);
uint32_t open_signal(uint32_t pid, uint32_t number);
uint32_t open_attach(uint32_t pid, uint8_t from, uint64_t offset);

/* ---- files, as "user" ---- */

/* A verb about a path ends with this code and text. */
void expect_failure(uint8_t verb, const char *path, uint16_t code, const char *fmt, ...) PRINTF_LIKE(4, 5);

uint32_t open_read(const char *path, uint64_t offset, uint64_t length);
void expect_bytes(const char *path, uint64_t offset, uint64_t length, const void *want, size_t n);

uint32_t open_write(const char *user, const char *path, const char *const *pairs);

struct entry write_file(const char *user, const char *path, const char *const *pairs, const void *p, size_t n,
                        struct result *keep);

void expect_list(const char *path, uint32_t depth, const char *want);
