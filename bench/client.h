/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bench's own HTTP client: one kept-alive connection, blocking, no allocation, so that what is timed is the
 * service. Whatever goes wrong ends the program with a message: a figure of a failed call would be a lie.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CLIENT_IN = 256 * 1024, CLIENT_FRAME_MAX = 1024 * 1024, CLIENT_WAIT_S = 30 };

struct client {
    int fd;
    size_t at, end; /* of `in`: what is not consumed yet */
    uint64_t left;  /* of the body, or of the current chunk */
    bool chunked, body_over;
    int status;
    char in[CLIENT_IN];
    char frame[CLIENT_FRAME_MAX + 1];
    size_t frame_len;
};

struct sandbox {
    char id[64], token[128];
};

__attribute__((noreturn, format(printf, 1, 2))) void die(const char *fmt, ...);
double now_us(void);

/* Of a program's arguments. */
uint64_t number(const char *text, uint64_t most);
struct sandbox given_sandbox(char **argv);                         /* an id and a token */
bool is(const char *given, const char *name, int argc, int least); /* with so many arguments at least */

/* The service's address comes from BENCH_ADDRESS (127.0.0.1:PORT), the key from BENCH_KEY. receive_bytes: SO_RCVBUF, 0
 * for the default. */
void client_open(struct client *c, int receive_bytes);
void client_close(struct client *c);

/* head: request line and headers without Host and key, each line ended by CR LF; the empty line is added. */
void client_send(struct client *c, const char *head, const char *body, size_t n);
void client_send_raw(struct client *c, const void *p, size_t n);

/* Reads status line and headers; the body follows. */
void client_head(struct client *c);

/* The next piece of the body, at most `max` bytes, consumed by this call; 0 at its end. */
size_t client_body(struct client *c, const char **ret_p, size_t max);

/* The whole body as text, at most CLIENT_FRAME_MAX, in c->frame. */
const char *client_text(struct client *c);

/* The next frame of a Connect stream in c->frame, NUL-terminated. False: it was the last one, which must be {}. */
bool client_frame(struct client *c);

/* ---- the calls of an E2B SDK ---- */

void sandbox_create(struct client *c, struct sandbox *ret_sandbox);
void sandbox_kill(struct client *c, const char *id);

/* Process/Start; the events are read with client_frame(). */
void process_start(struct client *c, const struct sandbox *sb, const char *json);

/* `echo hi` by itself or as an SDK's commands.run() has it done, to its end; when its output and its end came. Anything
 * but "hi" and success is fatal. */
void run_echo(struct client *c, const struct sandbox *sb, bool bash, double *ret_first, double *ret_end);
