/* SPDX-License-Identifier: Apache-2.0 */
#include "event/evidence.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "event/tail.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <unistd.h>

enum { ED25519_BYTES = 32, SIGNATURE_BYTES = 64, PARTS_MAX = 2 << 20 };

struct evidence_key {
    EVP_PKEY *pkey;
    unsigned char public_key[ED25519_BYTES];
    char id[2 * SHA256_DIGEST_LENGTH + 1]; /* SHA-256 of the public key, hexadecimal */
};

/* ---- the key ---- */

static int evidence_make(const char *path, unsigned char seed[static ED25519_BYTES])
{
    AUTO_FREE char *fresh = mem_printf("%s.new", path);
    AUTO_CLOSE int fd = -1;
    id_random_bytes(seed, ED25519_BYTES);
    (void)unlink(fresh);
    fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
    if (fd < 0 || write(fd, seed, ED25519_BYTES) != ED25519_BYTES || fsync(fd) < 0 || rename(fresh, path) < 0)
        return -errno;
    return 0;
}

int evidence_key_open(const char *path, struct evidence_key **ret_key, struct err *err)
{
    unsigned char seed[ED25519_BYTES], hash[SHA256_DIGEST_LENGTH];
    size_t n = ED25519_BYTES;
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int r = fd >= 0           ? (read(fd, seed, sizeof(seed)) == ED25519_BYTES ? 0 : -EIO)
            : errno == ENOENT ? evidence_make(path, seed)
                              : -errno;
    if (r < 0)
        return err_errno(err, r, "the evidence key, %s", path);
    struct evidence_key *k = mem_new(struct evidence_key);
    k->pkey = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, sizeof(seed));
    mem_wipe(seed, sizeof(seed));
    if (!k->pkey || EVP_PKEY_get_raw_public_key(k->pkey, k->public_key, &n) != 1) {
        evidence_key_free(k);
        return err_set(err, ERR_INTERNAL, "the key for evidence: Ed25519 is not available from OpenSSL");
    }
    (void)SHA256(k->public_key, sizeof(k->public_key), hash);
    str_hex(hash, sizeof(hash), k->id);
    *ret_key = k;
    return 0;
}

void evidence_key_free(struct evidence_key *k)
{
    if (!k)
        return;
    EVP_PKEY_free(k->pkey);
    mem_free(k);
}

static void evidence_append_key(const struct evidence_key *k, struct buf *b)
{
    buf_printf(b, "\"keyid\":\"%s\",\"public_key\":\"", k->id);
    buf_append_hex(b, str_n((const char *)k->public_key, sizeof(k->public_key)));
    buf_append_char(b, '"');
}

int evidence_key_json(const struct evidence_key *k, struct buf *b, struct err *err)
{
    buf_append_char(b, '{');
    evidence_append_key(k, b);
    buf_append_char(b, '}');
    return buf_error(b) ? err_errno(err, buf_error(b), "the key for evidence") : 0;
}

/* ---- the envelope ---- */

static int evidence_seal(const struct evidence_key *k, const struct buf *payload, struct buf *to, struct err *err)
{
    AUTO_BUF struct buf pae = BUF_INIT(EVIDENCE_MAX + 128);
    unsigned char signature[SIGNATURE_BYTES];
    size_t n = sizeof(signature);
    buf_printf(&pae, "DSSEv1 %zu %s %zu ", strlen(EVIDENCE_TYPE), EVIDENCE_TYPE, buf_len(payload));
    buf_append_str(&pae, buf_str(payload));
    if (buf_error(payload) || buf_error(&pae))
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "evidence of more than %d MiB", EVIDENCE_MAX >> 20);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, k->pkey) == 1 &&
              EVP_DigestSign(ctx, signature, &n, (const unsigned char *)buf_data(&pae), buf_len(&pae)) == 1;
    EVP_MD_CTX_free(ctx);
    if (!ok)
        return err_set(err, ERR_INTERNAL, "evidence: it can't be signed");
    buf_append_cstr(to, "{\"payloadType\":\"" EVIDENCE_TYPE "\",\"payload\":\"");
    buf_append_base64(to, buf_str(payload));
    buf_printf(to, "\",\"signatures\":[{\"keyid\":\"%s\",\"sig\":\"", k->id);
    buf_append_base64(to, str_n((const char *)signature, n));
    buf_append_cstr(to, "\"}]}\n");
    return buf_error(to) ? err_errno(err, buf_error(to), "evidence") : 0;
}

static void evidence_begin(struct buf *b, const char *name, const unsigned char *digest, const char *type,
                           const struct evidence_key *k)
{
    char now[CLOCK_TEXT_MAX];
    clock_format(clock_real(), 0, now);
    buf_printf(b,
               "{\"_type\":\"https://in-toto.io/Statement/v1\",\"subject\":[{\"name\":\"%s\",\"digest\":{\"sha256\":\"",
               name);
    buf_append_hex(b, str_n((const char *)digest, EVENT_HASH_SIZE));
    buf_printf(b, "\"}}],\"predicateType\":\"%s\",\"predicate\":{\"made_at\":\"%s\",", type, now);
    evidence_append_key(k, b);
}

/* ---- of one log ---- */

struct evidence_walk {
    struct event_log *log;
    uint64_t next; /* seq; the chain is good up to the one before */
    unsigned char hash[EVENT_HASH_SIZE];
    struct err *err;
    uint64_t counts[EVENT_KIND_MAX][EVENT_GRADE_MAX], sent, received;
    struct buf policies, artefacts, records; /* lists, without their brackets */
    struct buf line;
    struct buf create; /* the data of sandbox.create */
    struct buf end;    /* and of the last event of all */
    bool has_all;
};

/* A member of data of ours; in texts of others a quote is escaped. */
static uint64_t evidence_number(struct str data, const char *key)
{
    const char *at = memmem(data.p, data.n, key, strlen(key));
    uint64_t n = 0;
    for (size_t i = at ? (size_t)(at - data.p) + strlen(key) : data.n;
         i < data.n && data.p[i] >= '0' && data.p[i] <= '9'; i++)
        n = n * 10 + (uint64_t)(data.p[i] - '0');
    return n;
}

static void evidence_item(struct buf *list, const struct event *e)
{
    buf_printf(list, "%s{\"seq\":%llu", buf_len(list) ? "," : "", (unsigned long long)e->seq);
}

static void evidence_artefacts(struct evidence_walk *w, const struct event *e)
{
    static const char mark[] = "\"sha256\":\"";
    struct str rest = e->data;
    for (const char *at; (at = memmem(rest.p, rest.n, mark, strlen(mark)));) {
        rest = str_sub(rest, (size_t)(at - rest.p) + strlen(mark));
        if (rest.n < (size_t)2 * EVENT_HASH_SIZE)
            return;
        evidence_item(&w->artefacts, e);
        buf_printf(&w->artefacts, ",\"sha256\":\"%.*s\"}", 2 * EVENT_HASH_SIZE, rest.p);
    }
}

static bool evidence_on_event(const struct event *e, void *ctx)
{
    struct evidence_walk *w = ctx;
    enum event_grade grade = EVENT_GRADE_UNKNOWN;
    if (e->seq != w->next || chain_next(w->log->chain, w->hash, e, w->hash, w->err) != 0 ||
        memcmp(w->hash, e->hash, sizeof(w->hash)) != 0)
        return false;
    w->next++;
    for (enum event_grade g = EVENT_OBSERVED_HOST; g < EVENT_GRADE_MAX; g++)
        if (str_eqc(e->grade, event_grade_name(g)))
            grade = g;
    w->counts[e->kind][grade]++;
    w->sent += evidence_number(e->data, "\"sent\":") * (e->kind == EVENT_NET_CLOSE || e->kind == EVENT_NET_FLOWS);
    w->received +=
        evidence_number(e->data, "\"received\":") * (e->kind == EVENT_NET_CLOSE || e->kind == EVENT_NET_FLOWS);
    if (e->kind == EVENT_SANDBOX_CREATE) {
        buf_clear(&w->create);
        buf_append_str(&w->create, e->data);
    }
    if (e->kind == EVENT_NET_POLICY) {
        evidence_item(&w->policies, e);
        buf_printf(&w->policies, ",\"policy\":%.*s}", STR_ARG(e->data));
    }
    if (e->kind == EVENT_EXEC_EXIT || e->kind == EVENT_EXEC_FAILED)
        evidence_artefacts(w, e);
    if (e->kind == EVENT_SANDBOX_ENDED || e->kind == EVENT_SANDBOX_FAILED) {
        buf_clear(&w->end);
        buf_append_str(&w->end, e->data);
    }
    buf_clear(&w->line);
    chain_format_record(e, &w->line);
    if (w->has_all && buf_len(&w->records) + buf_len(&w->line) * 2 < EVIDENCE_RECORDS_MAX) {
        buf_append_cstr(&w->records, buf_len(&w->records) ? "," : "");
        buf_append_json_string(&w->records, buf_str(&w->line));
    } else {
        w->has_all = false;
    }
    return true;
}

/* actions: by kind. observations: by grade, by kind. */
static void evidence_counts(const struct evidence_walk *w, struct buf *b)
{
    const char *comma = "";
    buf_append_cstr(b, ",\"actions\":{");
    for (enum event_kind k = 1; k < EVENT_KIND_MAX; k++) {
        uint64_t n = 0;
        for (size_t g = 0; event_kind_is_action(k) && g < EVENT_GRADE_MAX; g++)
            n += w->counts[k][g];
        if (n)
            buf_printf(b, "%s\"%s\":%llu", comma, event_kind_name(k), (unsigned long long)n), comma = ",";
    }
    buf_append_cstr(b, "},\"observations\":{");
    for (enum event_grade g = EVENT_OBSERVED_HOST; g < EVENT_GRADE_MAX; g++) {
        buf_printf(b, "%s\"%s\":{", g > EVENT_OBSERVED_HOST ? "," : "", event_grade_name(g));
        comma = "";
        for (enum event_kind k = 1; k < EVENT_KIND_MAX; k++)
            if (!event_kind_is_action(k) && w->counts[k][g])
                buf_printf(b, "%s\"%s\":%llu", comma, event_kind_name(k), (unsigned long long)w->counts[k][g]),
                    comma = ",";
        buf_append_char(b, '}');
    }
    buf_append_char(b, '}');
}

static void evidence_statement(const struct evidence_walk *w, const char *id, const struct event_head_row *head,
                               const struct evidence_key *k, struct buf *b)
{
    const uint64_t *opened = w->counts[EVENT_NET_OPEN], *denied = w->counts[EVENT_NET_DENIED],
                   *requests = w->counts[EVENT_NET_REQUEST];
    evidence_begin(b, id, head->last_hash, EVIDENCE_LOG, k);
    buf_printf(b, ",\"log\":{\"id\":\"%s\",\"first\":%llu,\"last\":%llu,\"base\":\"", id,
               (unsigned long long)head->base_seq + 1, (unsigned long long)head->last_seq);
    buf_append_hex(b, str_n((const char *)head->base_hash, EVENT_HASH_SIZE));
    buf_append_cstr(b, "\",\"head\":\"");
    buf_append_hex(b, str_n((const char *)head->last_hash, EVENT_HASH_SIZE));
    buf_printf(b, "\"},\"create\":%s,\"end\":%s", buf_len(&w->create) ? buf_data(&w->create) : "null",
               buf_len(&w->end) ? buf_data(&w->end) : "null");
    evidence_counts(w, b);
    buf_printf(b,
               ",\"network\":{\"connections\":%llu,\"requests\":%llu,\"denials\":%llu,\"sent\":%llu,\"received\":%llu},"
               "\"policies\":[",
               (unsigned long long)opened[EVENT_OBSERVED_HOST], (unsigned long long)requests[EVENT_OBSERVED_HOST],
               (unsigned long long)denied[EVENT_OBSERVED_HOST], (unsigned long long)w->sent,
               (unsigned long long)w->received);
    buf_append_str(b, buf_str(&w->policies));
    buf_append_cstr(b, "],\"artefacts\":[");
    buf_append_str(b, buf_str(&w->artefacts));
    buf_append_cstr(b, "],\"records\":");
    buf_append_cstr(b, w->has_all ? "[" : "null");
    if (w->has_all) {
        buf_append_str(b, buf_str(&w->records));
        buf_append_char(b, ']');
    }
    buf_append_cstr(b, "}}");
}

int evidence_of_log(struct event_log *log, const char *id, const struct evidence_key *k, struct buf *ret_envelope,
                    struct err *err)
{
    struct evidence_walk *w = mem_new(struct evidence_walk);
    AUTO_BUF struct buf payload = BUF_INIT(EVIDENCE_MAX * 3 / 4);
    struct event_head_row head;
    struct buf *const bufs[] = {&w->policies, &w->artefacts, &w->create, &w->end, &w->line, &w->records};
    for (size_t i = 0; i < ARRAY_SIZE(bufs); i++)
        buf_init(bufs[i], i < 2 ? PARTS_MAX : i < 5 ? EVENT_JSON_MAX + 4096 : EVIDENCE_RECORDS_MAX);
    w->has_all = true;
    int r = store_read_begin(log->store, err); /* what is checked is what is signed */
    r = r == 0 ? log_head(log, id, &head, err) : r;
    if (r == 0) {
        w->log = log;
        w->err = err;
        w->next = head.base_seq + 1;
        memcpy(w->hash, head.base_hash, sizeof(w->hash));
    }
    r = r == 0 ? event_read(log, id, 0, SIZE_MAX, evidence_on_event, w, err) : r;
    store_read_end(log->store);
    if (r >= 0 && (w->next != head.last_seq + 1 || memcmp(w->hash, head.last_hash, sizeof(w->hash)) != 0))
        r = err_set(err, ERR_DATA_LOSS,
                    "the log of %s is broken from event %llu on, which nobody should sign: 'cove log --verify'", id,
                    (unsigned long long)w->next);
    if (r >= 0) {
        (void)buf_append_char(&w->create, 0);
        (void)buf_append_char(&w->end, 0);
        w->create.end -= w->create.end > w->create.start;
        w->end.end -= w->end.end > w->end.start;
        evidence_statement(w, id, &head, k, &payload);
        r = evidence_seal(k, &payload, ret_envelope, err);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bufs); i++)
        buf_fini(bufs[i]);
    mem_free(w);
    return r < 0 ? -1 : 0;
}

/* ---- of all heads ---- */

static void evidence_on_head(void *ctx, const char *id, uint64_t last, const unsigned char *hash)
{
    struct buf *b = ctx;
    buf_printf(b, "%s{\"log\":", buf_len(b) ? "," : "");
    buf_append_json_string(b, str_of(id));
    buf_printf(b, ",\"seq\":%llu,\"hash\":\"", (unsigned long long)last);
    buf_append_hex(b, str_n((const char *)hash, EVENT_HASH_SIZE));
    buf_append_cstr(b, "\"}");
}

int evidence_of_heads(struct event_log *log, const struct evidence_key *k, struct buf *ret_envelope, struct err *err)
{
    AUTO_BUF struct buf heads = BUF_INIT(EVIDENCE_MAX / 2), payload = BUF_INIT(EVIDENCE_MAX * 3 / 4);
    unsigned char hash[SHA256_DIGEST_LENGTH];
    if (event_rows_heads_each(log->store, evidence_on_head, &heads, err) < 0)
        return -1;
    if (buf_error(&heads))
        return err_errno(err, buf_error(&heads), "the heads of all logs");
    (void)SHA256((const unsigned char *)buf_data(&heads), buf_len(&heads), hash);
    evidence_begin(&payload, "heads", hash, EVIDENCE_HEADS, k);
    buf_append_cstr(&payload, ",\"heads\":[");
    buf_append_str(&payload, buf_str(&heads));
    buf_append_cstr(&payload, "]}}");
    return evidence_seal(k, &payload, ret_envelope, err);
}
