/* SPDX-License-Identifier: Apache-2.0 */
#include "image/registry/fetch.h"
#include "image/apply/archive.h"
#include "image/apply/inflate.h"
#include "image/link.h"
#include "image/registry/registry.h"
#include "image/registry/request.h"
#include "image/report.h"

enum { INDEX_HOPS = 3 };

/* One job. Either registry or archive is where the image comes from. */
struct fetch_job {
    const struct fetch_config *config;
    struct report *report;
    struct image_feed feed;
    struct job_request request;
    struct registry *registry;
    struct archive_image *archive;
    struct manifest manifest;
    struct image_config image;
    char digest[DIGEST_TEXT_MAX];
    uint64_t unpacked;
};

/* A layer on its way. */
struct passage {
    struct fetch_job *job;
    struct report_layer told;
    struct digest *stored, *plain; /* of its bytes as they are stored; unpacked. NULL where the other says it all */
    struct inflate *inflate;
};

static bool canceled(void *ctx)
{
    struct fetch_job *j = ctx;
    return report_canceled(j->report);
}

static void fetch_on_warning(void *ctx, const char *text)
{
    struct fetch_job *j = ctx;
    if (!j->registry || !registry_is_told(j->registry, text))
        report_warning(j->report, text);
}

/* ---- blobs, wherever they come from ---- */

typedef int (*blob_fn)(void *ctx, const void *p, size_t n, struct err *err);

static int get_blob(struct fetch_job *j, const struct image_blob *blob, blob_fn fn, void *ctx, struct err *err)
{
    return j->registry ? registry_blob(j->registry, blob, fn, ctx, err) : archive_blob(j->archive, blob, fn, ctx, err);
}

static int fetch_keep(void *ctx, const void *p, size_t n, struct err *err)
{
    return buf_append(ctx, p, n) < 0
               ? err_set(err, ERR_OUT_OF_RANGE, "a document of the image is larger than %d bytes", MANIFEST_BYTES_MAX)
               : 0;
}

static int fetch_verify(const char *what, const char *is, const char *should, struct err *err)
{
    if (strcmp(is, should) == 0)
        return 0;
    return err_set(err, ERR_INVALID_ARGUMENT,
                   "%s has the digest %.20s..., not %.20s... as it should: damaged or forged", what, is, should);
}

/* A small one as a whole, verified. */
static int get_document(struct fetch_job *j, const struct image_blob *blob, const char *what, struct buf *text,
                        struct err *err)
{
    char digest[DIGEST_TEXT_MAX];
    if (blob->size != UINT64_MAX && blob->size > MANIFEST_BYTES_MAX)
        return err_set(err, ERR_OUT_OF_RANGE, "%s is larger than %d bytes", what, MANIFEST_BYTES_MAX);
    if (get_blob(j, blob, fetch_keep, text, err) < 0)
        return -1;
    digest_of(buf_str(text), digest);
    return blob->digest[0] ? fetch_verify(what, digest, blob->digest, err) : 0;
}

/* ---- the manifest ---- */

static int pull_manifest(struct fetch_job *j, struct err *err)
{
    const struct reference *ref = &j->request.image;
    char name[REFERENCE_TAG_MAX];
    uint64_t size = UINT64_MAX;
    (void)snprintf(name, sizeof(name), "%s", ref->digest[0] ? ref->digest : ref->tag);
    for (int hop = 0; hop < INDEX_HOPS; hop++) {
        AUTO_BUF struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
        char type[128];
        if (registry_manifest(j->registry, name, &text, type, err) < 0)
            return -1;
        if (size != UINT64_MAX && size != buf_len(&text))
            return err_set(err, ERR_INVALID_ARGUMENT, "the manifest has %zu bytes, the index says %llu", buf_len(&text),
                           (unsigned long long)size);
        digest_of(buf_str(&text), j->digest);
        if (manifest_parse(buf_str(&text), type, &j->request.platform, NULL, &j->manifest, err) < 0)
            return -1;
        if (!j->manifest.is_index)
            return 0;
        memcpy(name, j->manifest.config.digest, sizeof(j->manifest.config.digest));
        size = j->manifest.config.size;
    }
    return err_set(err, ERR_INVALID_ARGUMENT, "the image is an index of indexes of indexes");
}

static int read_layout(struct fetch_job *j, struct err *err)
{
    struct image_blob blob = {.size = UINT64_MAX};
    const char *ref = j->request.ref;
    for (int hop = 0; hop < INDEX_HOPS; hop++) {
        AUTO_BUF struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
        int r = hop == 0 ? archive_read_text(j->archive, "index.json", &text, err)
                         : get_document(j, &blob, "the manifest", &text, err);
        if (r < 0 || manifest_parse(buf_str(&text), NULL, &j->request.platform, ref, &j->manifest, err) < 0)
            return -1;
        if (!j->manifest.is_index) {
            digest_of(buf_str(&text), j->digest);
            return 0;
        }
        blob = j->manifest.config;
        ref = NULL;
    }
    return err_set(err, ERR_INVALID_ARGUMENT, "the archive's image is an index of indexes of indexes");
}

static int find_manifest(struct fetch_job *j, struct err *err)
{
    if (j->registry)
        return pull_manifest(j, err);
    if (!archive_is_docker(j->archive))
        return read_layout(j, err);
    AUTO_BUF struct buf text = BUF_INIT(MANIFEST_BYTES_MAX + 1);
    if (archive_read_text(j->archive, "manifest.json", &text, err) < 0)
        return -1;
    return manifest_parse_docker(buf_str(&text), j->request.ref, &j->manifest, err);
}

/* ---- the configuration ---- */

/* A docker-archive names it by its digest. */
static int check_config_name(const char *name, const char *digest, struct err *err)
{
    struct str base = str_of(strrchr(name, '/') ? strrchr(name, '/') + 1 : name);
    char named[DIGEST_TEXT_MAX];
    if (str_ends(base, STR(".json")))
        base.n -= 5;
    if (base.n != 64)
        return 0;
    (void)snprintf(named, sizeof(named), "sha256:%.*s", STR_ARG(base));
    return digest_is(str_of(named)) ? fetch_verify("the image's configuration", digest, named, err) : 0;
}

static int find_config(struct fetch_job *j, struct err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
    const struct platform *want = &j->request.platform, *has = &j->image.platform;
    if (get_document(j, &j->manifest.config, "the image's configuration", &text, err) < 0)
        return -1;
    if (!j->manifest.config.digest[0]) {
        digest_of(buf_str(&text), j->digest);
        if (check_config_name(j->manifest.config.name, j->digest, err) < 0)
            return -1;
    }
    if (config_parse(buf_str(&text), &j->image, err) < 0)
        return -1;
    if (j->image.n_layers != j->manifest.n_layers)
        return err_set(err, ERR_INVALID_ARGUMENT, "the image's configuration is of %zu layers, its manifest of %zu",
                       j->image.n_layers, j->manifest.n_layers);
    if ((has->os[0] || has->arch[0]) && !platform_matches(want, has))
        return err_set(err, ERR_NOT_FOUND, "the image is for %s/%s, not for %s/%s: ask for a platform that it has",
                       has->os, has->arch, want->os, want->arch);
    return 0;
}

/* ---- layers ---- */

static int on_plain(void *ctx, const void *p, size_t n, struct err *err)
{
    struct passage *s = ctx;
    if (s->plain)
        digest_add(s->plain, p, n);
    s->told.unpacked += n;
    return feed_data(&s->job->feed, p, n, err);
}

static int on_stored(void *ctx, const void *p, size_t n, struct err *err)
{
    struct passage *s = ctx;
    if (s->stored)
        digest_add(s->stored, p, n);
    s->told.bytes += n;
    report_pull(s->job->report, &s->told);
    if (report_canceled(s->job->report))
        return err_set(err, ERR_CANCELED, "canceled");
    if (clock_mono() > s->job->config->until)
        return err_set(err, ERR_DEADLINE_EXCEEDED, "the image took too long: allow more time, or try again");
    return inflate_push(s->inflate, p, n, err);
}

static int verify_layer(struct passage *s, const struct image_blob *blob, const char *diff_id, struct err *err)
{
    char digest[DIGEST_TEXT_MAX];
    if (s->stored) {
        digest_take(s->stored, digest);
        if (fetch_verify("a layer", digest, blob->digest, err) < 0)
            return -1;
    }
    if (s->plain)
        digest_take(s->plain, digest);
    return fetch_verify("an unpacked layer", digest, diff_id, err);
}

static int pass_layer(struct fetch_job *j, size_t i, struct err *err)
{
    const struct image_blob *blob = &j->manifest.layers[i];
    const char *diff_id = j->image.diff_ids[i];
    bool packed = blob->packing != PACKING_NONE;
    AUTO(digest_free) struct digest *stored = blob->digest[0] ? digest_new() : NULL;
    AUTO(digest_free) struct digest *plain = packed || !stored ? digest_new() : NULL;
    struct passage s = {.job = j, .stored = stored, .plain = plain};
    AUTO(inflate_free)
    struct inflate *inflate = inflate_new(blob->packing, j->config->max_bytes - j->unpacked, on_plain, &s);
    s.inflate = inflate;
    s.told = (struct report_layer){.name = blob->digest[0] ? blob->digest : diff_id,
                                   .index = i,
                                   .layers = j->manifest.n_layers,
                                   .of = blob->size,
                                   .unpacked = j->unpacked};
    if (blob->size == UINT64_MAX && archive_blob_size(j->archive, blob, &s.told.of, err) < 0)
        return -1;
    report_pull(j->report, &s.told);
    if (feed_layer(&j->feed, err) < 0 || get_blob(j, blob, on_stored, &s, err) < 0 || inflate_end(inflate, err) < 0 ||
        verify_layer(&s, blob, diff_id, err) < 0 || feed_layer_end(&j->feed, err) < 0)
        return -1;
    j->unpacked = s.told.unpacked;
    s.told.entries = j->feed.entries;
    report_unpacked(j->report, &s.told);
    return 0;
}

/* What the manifest promises is too much already? */
static int check_sizes(const struct fetch_job *j, struct err *err)
{
    uint64_t left = j->config->max_bytes;
    for (size_t i = 0; i < j->manifest.n_layers; i++) {
        uint64_t size = j->manifest.layers[i].size;
        if (size == UINT64_MAX)
            continue;
        if (size > left)
            return err_set(err, ERR_OUT_OF_RANGE, "the image's layers are larger than the %llu bytes that are allowed",
                           (unsigned long long)j->config->max_bytes);
        left -= size;
    }
    return 0;
}

/* ---- the job ---- */

static int open_source(struct fetch_job *j, struct err *err)
{
    const struct fetch_config *o = j->config;
    const struct job_request *q = &j->request;
    if (q->archive) {
        const struct archive_config archive = {
            .fd = q->archive_fd, .spool = o->spool_fd, .spool_max = o->max_bytes, .canceled = canceled, .ctx = j};
        return archive_image_open(&archive, &j->archive, err);
    }
    const struct http_config http = {
        .ca = o->ca, .hosts = &q->hosts, .stall_s = o->stall_s, .until = o->until, .canceled = canceled, .ctx = j};
    http_set(o->http, &http);
    const struct registry_config registry = {.http = o->http,
                                             .hosts = &q->hosts,
                                             .ref = &q->image,
                                             .username = q->username,
                                             .password = q->password,
                                             .token = q->token,
                                             .until = o->until,
                                             .canceled = canceled,
                                             .ctx = j};
    j->registry = registry_new(&registry);
    return 0;
}

static int image_fetch_run(struct fetch_job *j, struct err *err)
{
    if (job_request_read(j->config->job_fd, &j->request, err) < 0)
        return -1;
    report_resolve(j->report);
    if (open_source(j, err) < 0 || find_manifest(j, err) < 0 || find_config(j, err) < 0 || check_sizes(j, err) < 0)
        return -1;
    for (size_t i = 0; i < j->manifest.n_layers; i++)
        if (pass_layer(j, i, err) < 0)
            return -1;
    if (feed_finish(&j->feed, err) < 0)
        return -1;
    const struct report_result result = {
        .digest = j->digest, .config = buf_str(&j->image.json), .bytes = j->unpacked, .entries = j->feed.entries};
    return report_ok(j->report, &result) < 0 ? err_set(err, ERR_CANCELED, "canceled") : 0;
}

int fetch_run(const struct fetch_config *config)
{
    struct fetch_job j = {.config = config, .request = {.archive_fd = -1}};
    struct err err;
    j.report = report_new(config->job_fd);
    j.feed = (struct image_feed){.data_fd = config->data_fd,
                                 .notes_fd = config->notes_fd,
                                 .canceled = canceled,
                                 .warn = fetch_on_warning,
                                 .ctx = &j};
    int r = image_fetch_run(&j, &err);
    if (r < 0 && j.registry)
        registry_withhold(j.registry, &err);
    if (r < 0)
        report_error(j.report, &err);
    registry_free(j.registry);
    archive_image_free(j.archive);
    manifest_fini(&j.manifest);
    config_fini(&j.image);
    job_request_fini(&j.request);
    report_free(j.report);
    return r < 0 ? 1 : 0;
}
