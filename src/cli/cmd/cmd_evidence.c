/* SPDX-License-Identifier: Apache-2.0 */
/* Evidence: fetched from the service, checked without it. What is checked is anybody's: nothing of a file is believed
 * before its signature fits. */
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/things.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

enum { EVIDENCE_FILE_MAX = 64 << 20, KEY_BYTES = 32, HASH_BYTES = 32 };

static const struct flag evidence_flags[] = {
    {'o', "output", "FILE", "export, heads: writes to this file. Default: standard output."},
    {0, "day", "YYYY-MM-DD", "heads: those signed on that day, up to 30 days ago. Default: the current ones."},
    {0, "key", "HEX",
     "verify: the public key of the service, as 'cove evidence key' prints it there. Default: the key in the "
     "file, which is printed."},
    {0, "heads", "FILE", "verify: heads that were signed earlier; the log must contain its own."},
};

/* ---- what is checked ---- */

struct evidence_file {
    json_t *envelope, *statement;
    const json_t *predicate;
    struct buf payload;
};

static void evidence_file_fini(struct evidence_file *f)
{
    json_decref(f->envelope);
    json_decref(f->statement);
    buf_fini(&f->payload);
}

static bool unhex(const char *text, unsigned char *to, size_t n)
{
    if (strlen(text) != 2 * n || !str_is_hex(str_of(text)))
        return false;
    for (size_t i = 0; i < n; i++)
        to[i] = (unsigned char)(str_hex_value(text[2 * i]) << 4 | str_hex_value(text[2 * i + 1]));
    return true;
}

static bool signature_fits(const struct evidence_file *f, const unsigned char key[static KEY_BYTES])
{
    const char *type = service_text(f->envelope, "payloadType");
    bool fits = false;
    AUTO_BUF struct buf pae = BUF_INIT(EVIDENCE_FILE_MAX + 256);
    buf_printf(&pae, "DSSEv1 %zu %s %zu ", strlen(type), type, buf_len(&f->payload));
    buf_append_str(&pae, buf_str(&f->payload));
    EVP_PKEY *pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key, KEY_BYTES);
    JSON_FOREACH (one, json_object_get(f->envelope, "signatures")) {
        AUTO_BUF struct buf sig = BUF_INIT(256);
        EVP_MD_CTX *ctx = EVP_MD_CTX_new();
        fits |= pkey && ctx && buf_append_unbase64(&sig, str_of(service_text(one, "sig"))) == 0 &&
                EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, pkey) == 1 &&
                EVP_DigestVerify(ctx, (const unsigned char *)buf_data(&sig), buf_len(&sig),
                                 (const unsigned char *)buf_data(&pae), buf_len(&pae)) == 1;
        EVP_MD_CTX_free(ctx);
    }
    EVP_PKEY_free(pkey);
    return fits && !buf_error(&pae);
}

/* key NULL: the file's own. */
static int evidence_read(const char *path, const char *key_text, const char *type, struct evidence_file *f,
                         struct err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(EVIDENCE_FILE_MAX);
    unsigned char key[KEY_BYTES];
    FILE *in = fopen(path, "re");
    int r = in ? fd_read_all(fileno(in), &text) : -errno;
    if (in)
        (void)fclose(in);
    buf_init(&f->payload, EVIDENCE_FILE_MAX);
    if (r < 0)
        return err_errno(err, r, "%s", path);
    f->envelope = json_loadb(buf_data(&text) ? buf_data(&text) : "", buf_len(&text), JSON_REJECT_DUPLICATES, NULL);
    if (buf_append_unbase64(&f->payload, str_of(service_text(f->envelope, "payload"))) < 0 || !buf_len(&f->payload))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s is not a DSSE envelope", path);
    f->statement = json_loadb(buf_data(&f->payload), buf_len(&f->payload), JSON_REJECT_DUPLICATES, NULL);
    f->predicate = json_object_get(f->statement, "predicate");
    if (!unhex(key_text ? key_text : service_text(f->predicate, "public_key"), key, sizeof(key)))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s",
                       key_text ? "--key: 64 hexadecimal digits" : "there is no key in it");
    if (!signature_fits(f, key))
        return err_set(err, ERR_DATA_LOSS,
                       "%s: the signature is not that of this key: it was changed, or somebody else made it", path);
    if (strcmp(service_text(f->statement, "predicateType"), type) != 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s is evidence of another kind", path);
    return 0;
}

/* What a list of heads says about this log: 0 seq when nothing. */
static void earlier_head(const json_t *heads, const char *log, uint64_t *ret_seq,
                         unsigned char ret_hash[static HASH_BYTES])
{
    *ret_seq = 0;
    JSON_FOREACH (one, json_object_get(heads, "heads"))
        if (strcmp(service_text(one, "log"), log) == 0 && unhex(service_text(one, "hash"), ret_hash, HASH_BYTES))
            *ret_seq = (uint64_t)json_integer_value(json_object_get(one, "seq"));
}

/* hash(n) from hash(n-1): docs/RECORD.md. */
static void chain_step(unsigned char hash[static HASH_BYTES], const json_t *record)
{
    AUTO_BUF struct buf b = BUF_INIT(HASH_BYTES + 65536);
    (void)buf_append(&b, hash, HASH_BYTES);
    (void)buf_append_str(&b, json_str(record));
    (void)SHA256((const unsigned char *)buf_data(&b), buf_len(&b), hash);
}

/* The chain over the records, from base to head, through the earlier head. */
static int chain_check(const json_t *predicate, const json_t *heads, bool *ret_passed, struct err *err)
{
    const json_t *log = json_object_get(predicate, "log"), *records = json_object_get(predicate, "records");
    unsigned char hash[HASH_BYTES], head[HASH_BYTES], earlier[HASH_BYTES];
    uint64_t seq = (uint64_t)json_integer_value(json_object_get(log, "first")), earlier_seq;
    if (!unhex(service_text(log, "base"), hash, sizeof(hash)) || !unhex(service_text(log, "head"), head, sizeof(head)))
        return err_set(err, ERR_DATA_LOSS, "the log's hashes are missing");
    earlier_head(heads, service_text(log, "id"), &earlier_seq, earlier);
    *ret_passed = earlier_seq && earlier_seq == seq - 1 && memcmp(earlier, hash, sizeof(hash)) == 0;
    JSON_FOREACH (one, records) {
        chain_step(hash, one);
        AUTO_JSON json_t *event =
            json_loads(json_string_value(one) ? json_string_value(one) : "", JSON_ALLOW_NUL, NULL);
        if ((uint64_t)json_integer_value(json_object_get(event, "seq")) != seq)
            return err_set(err, ERR_DATA_LOSS, "event %llu is missing", (unsigned long long)seq);
        if (seq == earlier_seq && memcmp(earlier, hash, sizeof(hash)) != 0)
            return err_set(err, ERR_DATA_LOSS,
                           "event %llu is not the one whose hash was signed earlier: the log was rewritten",
                           (unsigned long long)seq);
        *ret_passed |= seq == earlier_seq;
        seq++;
    }
    if (memcmp(hash, head, sizeof(hash)) != 0 || seq != (uint64_t)json_integer_value(json_object_get(log, "last")) + 1)
        return err_set(err, ERR_DATA_LOSS, "the records don't lead to the log's end");
    if (earlier_seq >= seq)
        return err_set(err, ERR_DATA_LOSS, "the log had %llu events when its head was signed, and has %llu: it was cut",
                       (unsigned long long)earlier_seq, (unsigned long long)(seq - 1));
    return 0;
}

struct evidence_options {
    const char *output, *key, *heads, *day;
};

static int evidence_verify(struct context *ctx, void *options)
{
    const struct evidence_options *o = options;
    const char *path = ctx->argv[ctx->argi], *key = o->key, *heads_path = o->heads;
    struct evidence_file f = {0}, heads = {0};
    bool passed = false, has_records;
    int status = STATUS_FAILED;
    if (evidence_read(path, key, "urn:cove:evidence:log:1", &f, &ctx->err) < 0 ||
        (heads_path && evidence_read(heads_path, key, "urn:cove:evidence:heads:1", &heads, &ctx->err) < 0))
        goto end;
    has_records = json_is_array(json_object_get(f.predicate, "records"));
    if (heads_path &&
        strcmp(service_text(f.predicate, "public_key"), service_text(heads.predicate, "public_key")) != 0) {
        (void)err_set(&ctx->err, ERR_DATA_LOSS, "the two files are signed with different keys");
        goto end;
    }
    if (has_records && chain_check(f.predicate, heads.predicate, &passed, &ctx->err) < 0)
        goto end;
    if (heads_path && !passed) {
        (void)err_set(&ctx->err, ERR_NOT_FOUND,
                      has_records ? "%s says nothing of an event that is in this log"
                                  : "%s can't be held against it: it has no records",
                      heads_path);
        goto end;
    }
    status = STATUS_OK;
    if (ctx->json) {
        print_json(f.statement);
        goto end;
    }
    const json_t *log = json_object_get(f.predicate, "log");
    terminal_line(stdout, "good: %s, events %lld to %lld, signed %s with the key %s%s%s", service_text(log, "id"),
                  (long long)json_integer_value(json_object_get(log, "first")),
                  (long long)json_integer_value(json_object_get(log, "last")), service_text(f.predicate, "made_at"),
                  key ? "that was given" : service_text(f.predicate, "public_key"),
                  has_records ? "" : "; the records are too long to be in it: only the summary was checked",
                  passed ? "; it goes on from the head that was signed earlier" : "");
end:
    evidence_file_fini(&f);
    evidence_file_fini(&heads);
    return status == STATUS_OK ? status : context_fail(ctx, STATUS_FAILED);
}

/* ---- what is fetched ---- */

/* path NULL: to standard output. */
static int evidence_fetch(struct context *ctx, struct service *s, const char *target, const char *path)
{
    char piece[16 * 1024];
    ssize_t n;
    if (service_stream(s, "GET", target) < 0)
        return context_fail(ctx, STATUS_FAILED);
    FILE *to = path ? fopen(path, "we") : stdout;
    if (!to) {
        (void)err_errno(&ctx->err, errno, "%s", path);
        return context_fail(ctx, STATUS_FAILED);
    }
    bool ok = true;
    while ((n = http_client_read(service_client(s), piece, sizeof(piece))) > 0)
        ok = ok && fwrite(piece, 1, (size_t)n, to) == (size_t)n;
    ok = fflush(to) == 0 && ok;
    if (!ok)
        (void)err_errno(&ctx->err, errno, "%s", path ? path : "standard output");
    if (path)
        (void)fclose(to);
    if (n < 0)
        (void)service_broken(s, (int)n, "reading the evidence");
    return ok && n == 0 ? STATUS_OK : context_fail(ctx, STATUS_FAILED);
}

static int evidence_key(struct context *ctx, void *options UNUSED)
{
    AUTO_JSON json_t *key = NULL;
    if (service_ask(ctx, "GET", "/cove/v1/evidence/key", NULL, "asking for the key", &key) < 0)
        return context_fail(ctx, STATUS_FAILED);
    return things_answer(ctx, key, "public_key");
}

static int evidence_export(struct context *ctx, void *options)
{
    const struct evidence_options *o = options;
    const char *what = ctx->argv[ctx->argi];
    AUTO_FREE char *id = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (s && strcmp(what, "service") == 0)
        return evidence_fetch(ctx, s, "/cove/v1/service/evidence", o->output);
    if (!s || service_resolve_log(s, what, &id) < 0)
        return context_fail(ctx, STATUS_FAILED);
    AUTO_FREE char *target = service_target(id, "/evidence");
    return evidence_fetch(ctx, s, target, o->output);
}

static int evidence_heads(struct context *ctx, void *options)
{
    const struct evidence_options *o = options;
    AUTO_FREE char *target = mem_printf("/cove/v1/evidence/heads%s%s", o->day ? "?day=" : "", o->day ? o->day : "");
    AUTO(service_close) struct service *s = service_open(ctx);
    return s ? evidence_fetch(ctx, s, target, o->output) : context_fail(ctx, STATUS_FAILED);
}

static int evidence_run(struct context *ctx)
{
    static const struct command_form forms[] = {{"export", evidence_export, 1, 1, "export: one at a time"},
                                                {"verify", evidence_verify, 1, 1, "verify: one at a time"},
                                                {"heads", evidence_heads, 0, 0, "heads takes no operand"},
                                                {"key", evidence_key, 0, 0, "key takes no operand"}};
    struct evidence_options o = {0};
    if (CONTEXT_READ(ctx, {"output", .text = &o.output}, {"key", .text = &o.key}, {"heads", .text = &o.heads},
                     {"day", .text = &o.day}) < 0)
        return context_exit(ctx);
    return context_form(ctx, forms, ARRAY_SIZE(forms), &o);
}

const struct command cmd_evidence = {
    .name = "evidence",
    .summary = "export a sandbox's record as a signed file, and verify such files",
    .text = &text_evidence,
    .operands = "=export verify heads key|id",
    COMMAND_FLAGS(evidence_flags),
    .run = evidence_run,
};
