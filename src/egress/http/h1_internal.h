/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP/1 connection through cove-egress: h1.c moves it on, h1_request.c and h1_answer.c know each direction,
 * h1_write.c serialises. */
#pragma once

#include "egress/http/exchange_internal.h"
#include "egress/http/h1_parse.h"

enum h1_request {
    H1_REQUEST_HEAD,
    H1_REQUEST_WAIT,
    H1_REQUEST_HOLD,
    H1_REQUEST_BODY,
    H1_REQUEST_SKIP,
    H1_REQUEST_DONE
};
enum h1_answer { H1_ANSWER_NONE, H1_ANSWER_WAIT, H1_ANSWER_BODY, H1_ANSWER_DONE };
enum h1_phase { H1_IDLE, H1_READING_HEAD, H1_BUSY };

/*
 * One request at a time:
 *
 *   request  HEAD -> BODY (allowed: goes upstream) or SKIP (refused: is dropped) -> DONE
 *            HEAD -> WAIT (the owner wants time), HOLD (its body is collected) -> as from HEAD
 *   answer   NONE -> WAIT -> BODY -> DONE (upstream's), or NONE, WAIT -> DONE (ours)
 *
 * and both start again when both are DONE, unless `close`. After 101 there is only `raw`.
 */
struct h1 {
    struct exchange x;
    struct h1_parser req, ans;
    struct arena arena; /* of this request */
    struct exchange_head head;
    struct buf held; /* of a body that is collected */
    struct str rest; /* of a collected one, still to be written: in `held`, or the owner's */
    bool whole;      /* all of the body was collected */
    enum h1_request request;
    enum h1_answer answer;
    enum h1_phase phase;
    uint64_t id, phase_id;
    size_t skipped;
    bool raw;
    bool owed;      /* on_answer is still to be called */
    bool forwarded; /* something of this request went upstream */
    bool http10, head_only, upgrade;
    bool chunked_out; /* the answer, as the client gets it */
    bool close;       /* behind this answer */
    bool reused;      /* a request was answered before: the client will try again by itself */
    bool dead;        /* upstream was lost between requests or before the first: `why` */
    char why[256];
};

/* Each moves what can be moved; true: something. */
bool h1_request_step(struct h1 *h);
bool h1_answer_step(struct h1 *h);

/* h1.c: an answer of our own; only while there is none. */
void h1_respond(struct h1 *h, int status, struct str text);
void h1_tell_answer(struct h1 *h, int status);        /* when it is owed */
void h1_finish(struct h1 *h);                         /* in good order, or without an answer */
void h1_cut(struct h1 *h, const char *why);           /* so that nobody takes it for complete */
void h1_upstream_lost(struct h1 *h, const char *why); /* while an answer is waited for */

/* h1_write.c */
void h1_write_request(struct h1 *h, const struct exchange_head *head);
void h1_write_answer(struct h1 *h); /* the head that `ans` has */
void h1_write_piece(struct exchange_end *to, struct str piece, bool chunked);
void h1_write_end(struct h1 *h, struct exchange_end *to, const struct h1_parser *from, bool chunked);
