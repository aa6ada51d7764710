/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. OpenSSL reads from the other side (`under`) by a BIO of ours, and writes into the context's
 * scratch buffer.
 *
 *  1. The scratch buffer is empty between calls: whatever OpenSSL wrote during one is offered to `under` at its end,
 *     and what that does not take is kept in `out`. So OpenSSL's writes never block, and a record that is begun is
 *     finished whether or not its owner comes back with the same bytes.
 *  2. Plaintext is encrypted only while `out` is empty, TLS_WRITE bytes at most: `out` stays below TLS_OUT_MAX. What a
 *     peer can make us write besides (alerts, key updates) counts against the same limit, and reading stops there.
 *  3. `under` is read only when the owner reads, or for the handshake. OpenSSL reads ahead: bytes may wait inside of it
 *     while `under` has none, and what `under` has said to be readable may not be read to its end. Only when OpenSSL
 *     has said that it wants more, `under` will say when there is.
 *  4. An end of `under` without close_notify is a failure, whatever came before.
 */
#include "egress/tls/side_tls.h"
#include "base/mem.h"
#include "egress/tls/tls_internal.h"

#include <openssl/err.h>

static struct tls *tls_of(const struct side *s)
{
    assert(s->kind == &tls_kind);
    return container_of(s, struct tls, side);
}

struct tls *tls_of_ssl(const SSL *ssl)
{
    return SSL_get_app_data(ssl);
}

/* The BIO below OpenSSL. */

static int bio_read(BIO *b, char *to, int room)
{
    struct tls *t = BIO_get_data(b);
    BIO_clear_retry_flags(b);
    if (room <= 0)
        return 0;
    size_t had = MIN(buf_len(&t->first), (size_t)room);
    if (had) {
        memcpy(to, buf_data(&t->first), had);
        buf_consume(&t->first, had);
        if (buf_len(&t->first) == 0)
            buf_fini(&t->first);
        return (int)had;
    }
    ssize_t n = side_read(t->under, to, (size_t)room);
    if (n == 0)
        t->under_ended = true;
    if (n >= 0)
        return (int)n;
    if (n == -EAGAIN)
        BIO_set_retry_read(b);
    return -1;
}

static int bio_write(BIO *b, const char *from, int n)
{
    struct tls *t = BIO_get_data(b);
    struct buf *scratch = &t->context->scratch;
    BIO_clear_retry_flags(b);
    if (n <= 0)
        return 0;
    if (buf_len(scratch) + buf_len(&t->out) + (size_t)n > TLS_OUT_MAX) {
        BIO_set_retry_write(b);
        return -1;
    }
    return buf_append(scratch, from, (size_t)n) < 0 ? -1 : n;
}

static long bio_ctrl(BIO *b, int cmd, long num UNUSED, void *ptr UNUSED)
{
    const struct tls *t = BIO_get_data(b);
    switch (cmd) {
    case BIO_CTRL_FLUSH:
        return 1;
    case BIO_CTRL_EOF:
        return t->under_ended;
    default:
        return 0;
    }
}

BIO_METHOD *tls_bio_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "side");
    if (m) {
        (void)BIO_meth_set_read(m, bio_read);
        (void)BIO_meth_set_write(m, bio_write);
        (void)BIO_meth_set_ctrl(m, bio_ctrl);
    }
    return m;
}

/* Invariant 1. Each entry into OpenSSL stands between these two. */

static void enter(const struct tls *t)
{
    assert(buf_len(&t->context->scratch) == 0);
    ERR_clear_error();
}

/* Reading goes on, and finds out why. Where it has come to its end already, nobody else would tell. */
static void break_writing(struct tls *t, int errnum)
{
    t->write_error = errnum;
    if (t->side.ended)
        side_fail_errno(&t->side, errnum, "write");
}

/* What under takes of b goes; false: b is not empty yet. */
static bool offer(struct tls *t, struct buf *b)
{
    while (buf_len(b) && !t->write_error) {
        ssize_t n = side_write(t->under, buf_data(b), buf_len(b));
        if (n == -EAGAIN)
            return false;
        if (n < 0)
            break_writing(t, (int)-n);
        else
            buf_consume(b, (size_t)n);
    }
    return true;
}

static bool side_tls_flush(struct tls *t)
{
    if (!offer(t, &t->out))
        return false;
    buf_fini(&t->out); /* and what can't be written any more */
    if (t->shut_waits) {
        t->shut_waits = false;
        if (!t->write_error)
            side_shut(t->under);
    }
    return true;
}

static void leave(struct tls *t)
{
    struct buf *scratch = &t->context->scratch;
    if (buf_len(scratch) && side_tls_flush(t))
        (void)offer(t, scratch);
    if (buf_len(scratch) && !t->write_error)
        (void)buf_append_str(&t->out, buf_str(scratch)); /* fits: bio_write() saw to it */
    buf_clear(scratch);
}

/* Failures. */

static void fail_tls(struct tls *t, enum err_code code, int errnum, const char *text)
{
    struct err err;
    (void)err_set(&err, code, "%s", text);
    err.errnum = errnum;
    side_fail(&t->side, &err);
}

static enum side_tls_alert alert_of(int received)
{
    switch (received) {
    case TLS_ALERT_PROTOCOL_VERSION:
    case TLS_ALERT_UNRECOGNIZED_NAME:
    case TLS_ALERT_ACCESS_DENIED:
    case TLS_ALERT_INTERNAL_ERROR:
        return (enum side_tls_alert)received;
    default:
        return TLS_ALERT_HANDSHAKE_FAILURE;
    }
}

/* OpenSSL refused to go on, or its peer did. Failures of `under` come by itself. */
static int judge_failure(struct tls *t)
{
    const char *when = t->side.ready ? "TLS" : "TLS handshake";
    char text[240];
    unsigned long e = ERR_peek_error();
    int reason = ERR_GET_REASON(e);
    if (t->under->failure)
        return -(t->under->failure->errnum ? t->under->failure->errnum : EIO);
    if (t->under_ended && t->side.ready) {
        fail_tls(t, ERR_DATA_LOSS, ECONNABORTED,
                 "TLS: the connection ended without close_notify: what came may be cut");
        return -ECONNABORTED;
    }
    if (t->under_ended) {
        t->alert = TLS_ALERT_HANDSHAKE_FAILURE;
        fail_tls(t, ERR_UNAVAILABLE, ECONNABORTED, "TLS handshake: the connection ended");
        return -ECONNABORTED;
    }
    if (t->verdict[0]) {
        (void)snprintf(text, sizeof(text), "upstream certificate: %s", t->verdict);
        fail_tls(t, ERR_UNAUTHENTICATED, EPROTO, text);
        return -EPROTO;
    }
    if (e && ERR_GET_LIB(e) == ERR_LIB_SSL && reason >= SSL_AD_REASON_OFFSET) {
        int alert = reason - SSL_AD_REASON_OFFSET;
        t->alert = alert_of(alert);
        (void)snprintf(text, sizeof(text), "%s: the peer sent alert %d (%s)", when, alert,
                       SSL_alert_desc_string_long(alert));
    } else {
        const char *why = e ? ERR_reason_error_string(e) : NULL;
        t->alert = reason == SSL_R_UNSUPPORTED_PROTOCOL || reason == SSL_R_WRONG_SSL_VERSION
                       ? TLS_ALERT_PROTOCOL_VERSION
                       : TLS_ALERT_HANDSHAKE_FAILURE;
        (void)snprintf(text, sizeof(text), "%s: %s", when, why ? why : "protocol error");
    }
    fail_tls(t, ERR_UNAVAILABLE, EPROTO, text);
    return -EPROTO;
}

/* What side_read() gives when OpenSSL gave no byte; also for the handshake, where 0 can't be. */
static int side_tls_judge(struct tls *t, int result)
{
    switch (SSL_get_error(t->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return -EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        t->read_waits = true;
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        return judge_failure(t);
    }
}

static bool tls_pending(const struct side *s)
{
    const struct tls *t = tls_of(s);
    return s->ready && !s->failure && (SSL_has_pending(t->ssl) || !t->under->want_read); /* invariant 3 */
}

static void handshake(struct tls *t)
{
    struct side *s = &t->side;
    enter(t);
    int r = SSL_do_handshake(t->ssl);
    if (r != 1) {
        if (side_tls_judge(t, r) == 0)
            fail_tls(t, ERR_UNAVAILABLE, ECONNABORTED, "TLS handshake: the peer ended it");
        leave(t); /* with an alert, perhaps */
        return;
    }
    leave(t);
    side_become_ready(s);
    if (!s->closed && tls_pending(s))
        side_tell_readable(s);
    if (!s->closed && buf_len(&t->out) == 0)
        side_tell_writable(s);
}

static void side_tls_on_limit(uv_timer_t *timer)
{
    struct tls *t = tls_of(timer->data);
    char text[80];
    (void)snprintf(text, sizeof(text), "TLS handshake: not done within %u ms", t->timeout_ms);
    t->alert = TLS_ALERT_INTERNAL_ERROR;
    fail_tls(t, ERR_DEADLINE_EXCEEDED, ETIMEDOUT, text);
}

/* Callbacks of `under`. */

static void on_under_ready(void *ctx)
{
    struct tls *t = ctx;
    if (!t->side.failure)
        side_limit(&t->side, t->timeout_ms, side_tls_on_limit);
}

static void on_under_readable(void *ctx)
{
    struct tls *t = ctx;
    if (t->side.failure)
        return;
    if (!t->side.ready)
        handshake(t);
    else
        side_tell_readable(&t->side);
}

static void on_under_writable(void *ctx)
{
    struct tls *t = ctx;
    struct side *s = &t->side;
    if (!side_tls_flush(t) || s->failure)
        return;
    if (!s->ready) {
        if (t->read_waits) {
            t->read_waits = false;
            handshake(t);
        }
        return;
    }
    if (t->read_waits) {
        t->read_waits = false;
        side_tell_readable(s);
    }
    if (!s->closed)
        side_tell_writable(s);
}

static void on_under_failed(void *ctx, const struct err *err)
{
    struct tls *t = ctx;
    struct err told = *err;
    if (!t->side.ready) {
        t->alert = TLS_ALERT_INTERNAL_ERROR;
        if (t->under->ready)
            (void)err_prefix(&told, "TLS handshake");
    }
    side_fail(&t->side, &told);
}

static const struct side_ops under_ops = {
    .on_ready = on_under_ready,
    .on_readable = on_under_readable,
    .on_writable = on_under_writable,
    .on_failed = on_under_failed,
};

/* The kind. */

static ssize_t tls_read(struct side *s, void *to, size_t room)
{
    struct tls *t = tls_of(s);
    size_t n = 0;
    enter(t);
    int r = SSL_read_ex(t->ssl, to, room, &n);
    ssize_t result = r == 1 ? (ssize_t)n : side_tls_judge(t, r);
    leave(t);
    if (result == 0 && t->write_error) {
        side_fail_errno(s, t->write_error, "write");
        return -t->write_error;
    }
    return result;
}

static ssize_t tls_write(struct side *s, const void *from, size_t n)
{
    struct tls *t = tls_of(s);
    size_t done = 0;
    while (done < n && !t->write_error && side_tls_flush(t)) {
        size_t wrote = 0;
        enter(t);
        int r = SSL_write_ex(t->ssl, (const char *)from + done, MIN(n - done, (size_t)TLS_WRITE), &wrote);
        int failure = r == 1 ? 0 : side_tls_judge(t, r);
        leave(t);
        if (r != 1)
            return failure;
        done += wrote;
    }
    return done == 0 && t->write_error ? -t->write_error : (ssize_t)done;
}

static void tls_shut(struct side *s)
{
    struct tls *t = tls_of(s);
    enter(t);
    (void)SSL_shutdown(t->ssl);
    leave(t);
    t->shut_waits = true;
    (void)side_tls_flush(t);
}

static void tls_watch(struct side *s UNUSED)
{
    /* `under` was told by the reads and writes that came back with -EAGAIN */
}

static bool tls_flushed(const struct side *s)
{
    const struct tls *t = tls_of(s);
    return buf_len(&t->out) == 0 && t->under->kind->flushed(t->under);
}

static void tls_close(struct side *s, bool abandon)
{
    struct tls *t = tls_of(s);
    if (!abandon && s->ready && !s->failure && !s->shut)
        tls_shut(s);
    SSL_free(t->ssl);
    buf_fini(&t->out);
    buf_fini(&t->first);
    tls_context_unref(t->context);
    if (abandon)
        side_reset(TAKE_PTR(t->under));
    else
        side_close(TAKE_PTR(t->under));
}

static void tls_released(struct side *s)
{
    struct tls *t = tls_of(s);
    MEM_FREE(t->name, t);
}

static int tls_fd(const struct side *s UNUSED)
{
    return -1;
}

const struct side_kind tls_kind = {
    .read = tls_read,
    .write = tls_write,
    .shut = tls_shut,
    .watch = tls_watch,
    .pending = tls_pending,
    .flushed = tls_flushed,
    .close = tls_close,
    .released = tls_released,
    .fd = tls_fd,
};

struct side *tls_start(struct tls *t, bool is_prepared)
{
    if (!is_prepared) {
        struct err err;
        (void)tls_error(&err, ERR_INTERNAL, "TLS");
        side_fail(&t->side, &err);
        side_set(t->under, NULL, NULL);
        return &t->side;
    }
    side_set(t->under, &under_ops, t);
    if (t->under->ready)
        on_under_ready(t);
    handshake(t); /* can't be complete yet: the peer has to answer */
    return &t->side;
}

struct str side_tls_alpn(const struct side *s)
{
    const unsigned char *p = NULL;
    unsigned n = 0;
    if (s->ready)
        SSL_get0_alpn_selected(tls_of(s)->ssl, &p, &n);
    return n ? str_n(p, n) : STR_NULL;
}

enum side_tls_alert side_tls_failure_alert(const struct side *s)
{
    return tls_of(s)->alert;
}
