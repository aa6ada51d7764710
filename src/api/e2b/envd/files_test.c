/* SPDX-License-Identifier: Apache-2.0 */
/* /files, Filesystem and other ports, against agents that do as they are told. */
#include "api/e2b/envd/signature.h"
#include "api/e2b/test_e2b.h"
#include "base/fd.h"
#include "base/mem.h"
#include "http/gzip.h"
#include "http/url.h"
#include "sandbox/quota.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static struct buf *file_at(struct test_facade *f, const struct sandbox *sb, const char *path)
{
    struct buf *file = map_get(&world_agent(f->w, sb)->files, str_of(path));
    if (!file)
        fail_msg("there is no %s", path);
    return file;
}

static int upload(struct test_facade *f, const struct sandbox *sb, const char *query, const char *headers,
                  struct str body, struct buf *ret)
{
    AUTO_BUF struct buf all = BUF_INIT(16384), target = BUF_INIT(4096);
    buf_printf(&all, "%s%s%c", facade_headers(sb, 49983), headers, 0);
    buf_printf(&target, "/files%s%c", query, 0);
    return facade_call(f, "POST", buf_data(&target), buf_data(&all), body, NULL, ret);
}

static void a_full_disk_is_told_from_other_limits(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, false);
    const char *octets = "Content-Type: application/octet-stream\r\n";
    assert_int_equal(upload(f, sb, "?path=/full/a", octets, STR("x"), &b), 507);
    assert_int_equal(upload(f, sb, "?path=/busy/a", octets, STR("x"), &b), 429);
}

static int download(struct test_facade *f, const struct sandbox *sb, const char *path, const char *headers,
                    struct buf *ret_head, struct buf *ret)
{
    AUTO_BUF struct buf all = BUF_INIT(16384), target = BUF_INIT(4096);
    buf_printf(&all, "%s%s%c", facade_headers(sb, 49983), headers, 0);
    buf_printf(&target, "/files?path=%s%c", path, 0);
    return facade_call(f, "GET", buf_data(&target), buf_data(&all), STR_NULL, ret_head, ret);
}

static void fill(struct buf *b, size_t n)
{
    uint32_t v = 1;
    for (size_t i = 0; i < n; i++) {
        v = v * 1664525 + 1013904223;
        buf_append_char(b, (char)(v >> 24));
    }
}

static const char *const octets = "Content-Type: application/octet-stream\r\n";
static const char *const form = "Content-Type: multipart/form-data; boundary=XX\r\n";

static void large_files_go_in_and_out_whole(void **state)
{
    AUTO_BUF struct buf data = BUF_INIT(8 << 20), b = BUF_INIT(16 << 20), head = BUF_INIT(16384),
                        body = BUF_INIT(16 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    fill(&data, 5000000);
    assert_int_equal(upload(f, sb, "?path=/t/big", octets, buf_str(&data), &b), 200);
    assert_is(&b, "[{\"path\":\"/t/big\",\"name\":\"big\",\"type\":\"file\",\"metadata\":{\"key\":\"value\"}}]");
    assert_true(str_eq(buf_str(file_at(f, sb, "/t/big")), buf_str(&data)));

    assert_int_equal(download(f, sb, "/t/big", "", &head, &b), 200);
    assert_has(&head, "content-length: 5000000");
    assert_has(&head, "content-type: application/octet-stream");
    assert_true(str_eq(buf_str(&b), buf_str(&data)));

    buf_append_cstr(&body, "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/tmp/multi\"\r\n\r\n");
    buf_append_str(&body, buf_str(&data));
    buf_append_cstr(&body, "\r\n--XX--\r\n");
    assert_int_equal(upload(f, sb, "", form, buf_str(&body), &b), 200);
    assert_true(str_eq(buf_str(file_at(f, sb, "/tmp/multi")), buf_str(&data)));
}

static void one_request_may_carry_many_files(void **state)
{
    AUTO_BUF struct buf body = BUF_INIT(16 << 20), b = BUF_INIT(16 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    char path[32];
    for (int i = 0; i < 300; i++) {
        buf_printf(&body, "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/tmp/%d\"\r\n\r\n", i);
        for (int k = 0; k < i * 20; k++)
            buf_append_char(&body, (char)('a' + i % 26));
        buf_append_cstr(&body, "\r\n");
        if (i % 7 == 0)
            buf_append_cstr(&body, "--XX\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nskipped\r\n");
    }
    buf_append_cstr(&body, "--XX--\r\n");
    assert_int_equal(upload(f, sb, "", form, buf_str(&body), &b), 200);
    for (int i = 0; i < 300; i++) {
        snprintf(path, sizeof(path), "/tmp/%d", i);
        assert_int_equal(buf_len(file_at(f, sb, path)), i * 20);
    }
    assert_has(&b, "\"path\":\"/tmp/299\"");
    assert_null(map_get(&world_agent(f->w, sb)->files, STR("skipped")));

    assert_int_equal(upload(f, sb, "", form, STR("--XX--\r\n"), &b), 200);
    assert_is(&b, "[]");
    assert_int_equal(upload(f, sb, "?path=/t/given", form,
                            STR("--XX\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\ntext\r\n--XX--\r\n"), &b),
                     200);
    assert_is(file_at(f, sb, "/t/given"), "text");
}

static void pack(struct str in, struct buf *out)
{
    AUTO(gzip_free) struct gzip *g = gzip_new(6);
    char chunk[4096];
    size_t n;
    int r;
    do {
        r = gzip_next(g, &in, GZIP_FINISH, chunk, sizeof(chunk), &n);
        assert_true(r >= 0);
        buf_append(out, chunk, n);
    } while (r != GZIP_END);
}

static void gzip_goes_both_ways(void **state)
{
    AUTO_BUF struct buf data = BUF_INIT(32 << 20), packed = BUF_INIT(32 << 20), b = BUF_INIT(32 << 20),
                        head = BUF_INIT(16384);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    char headers[128];
    for (int i = 0; i < 3000000; i++)
        buf_append_cstr(&data, "zeros ");
    pack(buf_str(&data), &packed);
    assert_true(buf_len(&packed) < buf_len(&data) / 100);
    snprintf(headers, sizeof(headers), "%sContent-Encoding: gzip\r\n", octets);
    assert_int_equal(upload(f, sb, "?path=/t/z", headers, buf_str(&packed), &b), 200);
    assert_true(str_eq(buf_str(file_at(f, sb, "/t/z")), buf_str(&data)));

    assert_int_equal(upload(f, sb, "?path=/t/cut", headers, str_n(buf_data(&packed), buf_len(&packed) / 2), &b), 400);
    assert_has(&b, "unexpected end");
    assert_int_equal(upload(f, sb, "?path=/t/no", headers, STR("not gzip at all"), &b), 400);
    snprintf(headers, sizeof(headers), "%sContent-Encoding: br\r\n", octets);
    assert_int_equal(upload(f, sb, "?path=/t/br", headers, STR("x"), &b), 400);

    assert_int_equal(upload(f, sb, "?path=/t/small.txt", octets, str_n(buf_data(&data), 60000), &b), 200);
    assert_int_equal(download(f, sb, "/t/small.txt", "Accept-Encoding: gzip, deflate\r\n", &head, &b), 200);
    assert_has(&head, "content-encoding: gzip");
    assert_true(buf_len(&b) < 6000);
    assert_int_equal(download(f, sb, "/t/small.txt", "Accept-Encoding: identity;q=0\r\n", &head, &b), 406);
}

static void parts_conditions_and_empty_files(void **state)
{
    AUTO_BUF struct buf old = BUF_INIT(4096), b = BUF_INIT(1 << 20), head = BUF_INIT(16384), headers = BUF_INIT(4096);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    assert_int_equal(upload(f, sb, "?path=/t/a.txt", octets, STR("0123456789"), &b), 200);
    assert_int_equal(upload(f, sb, "?path=/t/empty", octets, STR(""), &b), 200);
    assert_int_equal(download(f, sb, "/t/empty", "Accept-Encoding: gzip\r\n", &head, &b), 200);
    assert_has(&head, "content-length: 0");
    assert_int_equal(download(f, sb, "/t/a.txt", "Range: bytes=-20\r\n", &head, &b), 206);
    assert_has(&head, "content-range: bytes 0-9/10");
    assert_int_equal(download(f, sb, "/t/a.txt", "Range: bytes=20-\r\n", &head, &b), 416);
    assert_has(&head, "content-range: bytes */10");
    assert_int_equal(download(f, sb, "/t/a.txt", "If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT\r\n", &head, &b),
                     304);
    assert_int_equal(buf_len(&b), 0);
    assert_int_equal(download(f, sb, "/t/nothing", "", &head, &b), 404);
    buf_printf(&headers, "%s%c", facade_headers(sb, 49983), 0);
    assert_int_equal(facade_call(f, "HEAD", "/files?path=/t/a.txt", buf_data(&headers), STR_NULL, &head, &b), 200);
    assert_has(&head, "content-length: 10");
    assert_int_equal(buf_len(&b), 0);

    /* A client that fails on a field that it does not know. */
    buf_printf(&old, "%sUser-Agent: connect-python\r\nContent-Type: application/json\r\n%c", facade_headers(sb, 49983),
               0);
    assert_int_equal(
        facade_call(f, "POST", "/filesystem.Filesystem/Stat", buf_data(&old), STR("{\"path\":\"/t/a.txt\"}"), NULL, &b),
        200);
    assert_is(&b, "{\"entry\":{\"name\":\"a.txt\",\"type\":\"FILE_TYPE_FILE\",\"path\":\"/t/a.txt\"}}");

    /* What a file is does not depend on how much of it was asked for. */
    assert_int_equal(upload(f, sb, "?path=/t/noext", octets, STR("\1x345678\t"), &b), 200);
    assert_int_equal(facade_call(f, "HEAD", "/files?path=/t/noext", buf_data(&headers), STR_NULL, &head, &b), 200);
    assert_has(&head, "content-type: application/octet-stream");
    assert_int_equal(download(f, sb, "/t/noext", "Range: bytes=1-3\r\n", &head, &b), 206);
    assert_has(&head, "content-type: application/octet-stream");
    assert_is(&b, "x34");
    assert_int_equal(download(f, sb, "/t/a.txt", "Range: bytes=1-3,-2,50-60\r\n", &head, &b), 206);
    assert_has(&head, "content-type: multipart/byteranges; boundary=");
    assert_has(&b, "Content-Range: bytes 1-3/10\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n123\r\n--");
    assert_has(&b, "Content-Range: bytes 8-9/10\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n89\r\n--");
    assert_int_equal(download(f, sb, "/t/a.txt", "Range: bytes=0-,0-\r\n", &head, &b), 200);
    assert_is(&b, "0123456789");

    assert_int_equal(upload(f, sb, "?path=/t/second", octets, STR("x"), &b), 200);
    assert_int_equal(facade_call(f, "POST", "/files/compose", buf_data(&headers),
                                 STR("{\"source_paths\":[\"/t/second\"],\"destination\":\"/t/c\"}"), NULL, &b),
                     200);
}

static void bad_uploads_are_told_what_is_wrong(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    char headers[512];
    assert_int_equal(upload(f, sb, "", octets, STR("x"), &b), 400);
    assert_has(&b, "path query parameter is required");
    assert_int_equal(upload(f, sb, "?path=a&path=b", octets, STR("x"), &b), 400);
    assert_int_equal(upload(f, sb, "?path=/t/a", "Content-Type: text/plain\r\n", STR("x"), &b), 400);
    assert_has(&b, "unsupported content type: text/plain");
    assert_int_equal(upload(f, sb, "?path=/t/a", "Content-Type: multipart/form-data\r\n", STR("x"), &b), 400);
    assert_has(&b, "boundary");
    assert_int_equal(upload(f, sb, "", form,
                            STR("--XX\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx\r\n--XX--\r\n"), &b),
                     400);
    assert_has(&b, "filename not found");
    assert_int_equal(
        upload(f, sb, "?path=/t/a", form, STR("--XX\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nx"), &b),
        400);
    assert_has(&b, "closing boundary");
    assert_int_equal(upload(f, sb, "?path=/t/a", form, STR("garbage\r\n--YY\r\n"), &b), 400);
    assert_int_equal(upload(f, sb, "?path=/t/twice", form,
                            STR("--XX\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n1\r\n"
                                "--XX\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n2\r\n--XX--\r\n"),
                            &b),
                     400);
    assert_has(
        &b,
        "multiple files to the same path '/t/twice' in one upload request, only the first specified file was uploaded");
    assert_is(file_at(f, sb, "/t/twice"), "1");
    snprintf(headers, sizeof(headers), "%sX-Metadata-Name: \xc3\xa9\r\n", octets);
    assert_int_equal(upload(f, sb, "?path=/t/a", headers, STR("x"), &b), 400);
    assert_has(&b, "non-printable-ASCII byte 0xc3 at offset 0");
}

static void files_are_joined(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), data = BUF_INIT(4 << 20), headers = BUF_INIT(2048);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    fill(&data, 2000000);
    assert_int_equal(upload(f, sb, "?path=/t/1", octets, str_n(buf_data(&data), 700000), &b), 200);
    assert_int_equal(upload(f, sb, "?path=/t/2", octets, STR(""), &b), 200);
    assert_int_equal(upload(f, sb, "?path=/t/3", octets, str_n(buf_data(&data) + 700000, 1300000), &b), 200);
    buf_printf(&headers, "%sContent-Type: application/json\r\n%c", facade_headers(sb, 49983), 0);
    assert_int_equal(facade_call(f, "POST", "/files/compose", buf_data(&headers),
                                 STR("{\"source_paths\":[\"/t/1\",\"/t/nothing\"],\"destination\":\"/t/all\"}"), NULL,
                                 &b),
                     404);
    assert_int_equal(facade_call(f, "POST", "/files/compose", buf_data(&headers),
                                 STR("{\"source_paths\":[\"/t/1\",\"/t/3\"],\"destination\":\"/t/3\"}"), NULL, &b),
                     400);
    assert_int_equal(
        facade_call(f, "POST", "/files/compose", buf_data(&headers), STR("{\"source_paths\":[]}"), NULL, &b), 400);
    assert_int_equal(
        facade_call(f, "POST", "/files/compose", buf_data(&headers), STR("{\"source_paths\":[\"a\"]}"), NULL, &b), 400);
    world_agent(f->w, sb)->most_outstanding = 0;
    /* The agents of this world do not really move: what was written is what would be. */
    (void)facade_call(f, "POST", "/files/compose", buf_data(&headers),
                      STR("{\"source_paths\":[\"/t/1\",\"/t/2\",\"/t/3\"],\"destination\":\"/t/all\"}"), NULL, &b);
    size_t it = 0;
    bool found = false;
    for (struct buf *file; (file = map_next(&world_agent(f->w, sb)->files, &it));)
        found = found || str_eq(buf_str(file), buf_str(&data));
    assert_true(found);
    assert_true(world_agent(f->w, sb)->most_outstanding <= WIRE_WINDOW);
}

static void an_upload_may_end_with_its_client_or_its_sandbox(void **state)
{
    AUTO_BUF struct buf answer = BUF_INIT(1 << 20), request = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    int fd = facade_connect(f);
    buf_printf(&request,
               "POST /files?path=/t/part HTTP/1.1\r\nHost: localhost\r\n%s%sContent-Length: 1000000\r\n\r\n0123456789",
               facade_headers(sb, 49983), octets);
    facade_send(f, fd, buf_str(&request));
    world_turns(f->w, 50);
    fd_close(fd);
    world_turns(f->w, 50);

    fd = facade_connect(f);
    facade_send(f, fd, buf_str(&request));
    world_turns(f->w, 50);
    world_end_agent(f->w, world_agent(f->w, sb), SUP_CAUSE_OOM);
    facade_receive(f, fd, &answer, NULL);
    assert_int_equal(buf_len(&answer), 0);
    fd_close(fd);
}

static void a_signature_finds_its_sandbox(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), target = BUF_INIT(4096), encoded = BUF_INIT(256);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    struct signature what = {.path = STR("/t/a"), .operation = STR("read"), .user = STR("")};
    char text[SIGNATURE_MAX];
    facade_sandbox(f, true);
    facade_sandbox(f, false);
    assert_int_equal(upload(f, sb, "?path=/t/a", octets, STR("signed"), &b), 200);
    signature_make(&what, str_of(sandbox_info(sb)->access_token), text);
    url_encode(&encoded, str_of(text), false);
    buf_printf(&target, "/files?path=/t/a&signature=%.*s%c", STR_ARG(buf_str(&encoded)), 0);
    assert_int_equal(facade_call(f, "GET", buf_data(&target), "", STR_NULL, NULL, &b), 200);
    assert_is(&b, "signed");

    what.expires = true;
    what.expiration = 10;
    signature_make(&what, str_of(sandbox_info(sb)->access_token), text);
    buf_clear(&encoded);
    buf_clear(&target);
    url_encode(&encoded, str_of(text), false);
    buf_printf(&target, "/files?path=/t/a&signature=%.*s&signature_expiration=10%c", STR_ARG(buf_str(&encoded)), 0);
    assert_int_equal(facade_call(f, "GET", buf_data(&target), "", STR_NULL, NULL, &b), 401);
    assert_is(&b, "{\"code\":401,\"message\":\"signature is already expired\"}");
    assert_int_equal(facade_call(f, "GET", "/files?path=/t/a&signature=v1_forged", "", STR_NULL, NULL, &b), 401);
    assert_is(&b, "{\"code\":401,\"message\":\"invalid signature\"}");
    assert_int_equal(facade_call(f, "GET", "/files?path=/t/a", "", STR_NULL, NULL, &b), 401);
    assert_int_equal(facade_call(f, "GET", "/files?path=/t/a", "X-API-KEY: " TEST_KEY "\r\n", STR_NULL, NULL, &b), 400);
}

static int ask(struct test_facade *f, const char *headers, struct buf *ret)
{
    AUTO_BUF struct buf request = BUF_INIT(2048);
    AUTO_CLOSE int fd = facade_connect(f);
    buf_clear(ret);
    buf_printf(&request, "GET /files?path=/t/a HTTP/1.1\r\nConnection: close\r\n%s\r\n", headers);
    facade_send(f, fd, buf_str(&request));
    facade_receive(f, fd, ret, NULL);
    assert_true(buf_len(ret) > 12);
    return (int)strtol(buf_data(ret) + 9, NULL, 10);
}

static void the_only_sandbox_is_not_meant_without_a_key(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, false);
    assert_int_equal(upload(f, sb, "?path=/t/a", octets, STR("alone"), &b), 200);
    assert_int_equal(ask(f, "Host: 127.0.0.1:7070\r\n", &b), 401);
    assert_int_equal(ask(f, "Host: localhost\r\n", &b), 401);
    assert_int_equal(ask(f, "Host: sandboxes.test\r\n", &b), 401);
    assert_int_equal(ask(f, "Host: localhost\r\nX-API-KEY: wrong\r\n", &b), 401);
    assert_int_equal(ask(f, "Host: localhost\r\nX-API-KEY: " TEST_KEY "\r\n", &b), 200);
    assert_int_equal(ask(f, "Host: localhost\r\nAuthorization: Bearer " TEST_KEY "\r\n", &b), 200);
}

static void pages_of_other_sites_have_no_open_sandbox(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), headers = BUF_INIT(1024), head = BUF_INIT(16384);
    struct test_facade *f = *state;
    struct sandbox *open = facade_sandbox(f, false), *closed = facade_sandbox(f, true);
    assert_int_equal(upload(f, open, "?path=/t/a.html", octets, STR("page"), &b), 200);
    assert_int_equal(upload(f, closed, "?path=/t/a.html", octets, STR("page"), &b), 200);
    buf_printf(&headers, "Sec-Fetch-Site: cross-site\r\n%c", 0);
    assert_int_equal(download(f, open, "/t/a.html", buf_data(&headers), NULL, &b), 403);
    assert_int_equal(download(f, open, "/t/a.html", "Origin: http://rebound.test\r\n", NULL, &b), 403);
    assert_int_equal(download(f, open, "/t/a.html", "Sec-Fetch-Site: same-origin\r\n", &head, &b), 200);
    assert_has(&head, "content-disposition: attachment");
    assert_has(&head, "cross-origin-resource-policy: same-origin");
    assert_has(&head, "x-content-type-options: nosniff");
    assert_int_equal(download(f, closed, "/t/a.html", buf_data(&headers), NULL, &b), 200); /* it has the token */
}

static void an_alias_leads_to_ports_and_to_nothing_else(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), headers = BUF_INIT(1024), body = BUF_INIT(1024);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, false);
    const struct sandbox_info *info = sandbox_info(sb);
    assert_int_equal(upload(f, sb, "?path=/t/a", octets, STR("mine"), &b), 200);
    buf_printf(&headers, "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\n%c", info->port_alias, 0);
    assert_int_equal(facade_call(f, "GET", "/files?path=/t/a", buf_data(&headers), STR_NULL, NULL, &b), 502);
    assert_has(&b, info->port_alias);
    assert_null(memmem(buf_data(&b), buf_len(&b), info->id, strlen(info->id)));
    assert_int_equal(facade_call(f, "GET", "/health", buf_data(&headers), STR_NULL, NULL, &b), 502);
    buf_printf(&body, "/sandboxes/%s%c", info->port_alias, 0);
    assert_int_equal(facade_call(f, "GET", buf_data(&body), "X-API-KEY: " TEST_KEY "\r\n", STR_NULL, NULL, &b), 404);
    buf_clear(&headers);
    buf_printf(&headers, "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 9\r\n%c", info->port_alias, 0);
    assert_int_equal(facade_call(f, "GET", "/", buf_data(&headers), STR_NULL, NULL, &b), 502);
    assert_has(&b, "port is not open");
    assert_null(memmem(buf_data(&b), buf_len(&b), info->id, strlen(info->id)));
}

/* SDKs of 2.7 to 2.26 name the sandbox to the API, too, and lose its name for what comes behind a connect. */
static void clients_that_say_too_much_or_too_little(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), headers = BUF_INIT(1024), target = BUF_INIT(256);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    const struct sandbox_info *info = sandbox_info(sb);
    facade_sandbox(f, true);
    assert_int_equal(upload(f, sb, "?path=/t/a", octets, STR("mine"), &b), 200);
    buf_printf(&target, "/sandboxes/%s/connect%c", info->id, 0);
    buf_printf(&headers,
               "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\nX-API-KEY: " TEST_KEY
               "\r\nContent-Type: application/json\r\n%c",
               info->id, 0);
    assert_int_equal(facade_call(f, "POST", buf_data(&target), buf_data(&headers), STR("{\"timeout\":60}"), NULL, &b),
                     200);
    assert_has(&b, info->id);

    buf_clear(&headers);
    buf_printf(&headers, "X-Access-Token: %s\r\nContent-Type: application/json\r\n%c", info->access_token, 0);
    assert_int_equal(
        facade_call(f, "POST", "/filesystem.Filesystem/Stat", buf_data(&headers), STR("{\"path\":\"/t/a\"}"), NULL, &b),
        200);
    assert_has(&b, "/t/a");
    assert_int_equal(facade_call(f, "POST", "/filesystem.Filesystem/Stat",
                                 "X-Access-Token: wrong\r\nContent-Type: application/json\r\n",
                                 STR("{\"path\":\"/t/a\"}"), NULL, &b),
                     401);
    assert_int_equal(facade_call(f, "POST", "/filesystem.Filesystem/Stat", "Content-Type: application/json\r\n",
                                 STR("{\"path\":\"/t/a\"}"), NULL, &b),
                     404);
    assert_int_equal(facade_call(f, "GET", "/health",
                                 "E2b-Sandbox-Id: inothing\r\nE2b-Sandbox-Port: 49983\r\nX-API-KEY: x\r\n", STR_NULL,
                                 NULL, &b),
                     502);
}

/* The message that names a new one. */
static void watcher_of(struct test_facade *f, const char *headers, struct buf *b, char *ret_message, size_t size)
{
    assert_int_equal(
        facade_call(f, "POST", "/filesystem.Filesystem/CreateWatcher", headers, STR("{\"path\":\"/t/d\"}"), NULL, b),
        200);
    (void)snprintf(ret_message, size, "%.*s", STR_ARG(buf_str(b)));
    assert_non_null(strstr(ret_message, "\"watcherId\":\""));
}

static void directories_are_listed_and_watched(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), headers = BUF_INIT(1024), body = BUF_INIT(1024),
                        request = BUF_INIT(4096);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    struct fake_agent *a = world_agent(f->w, sb);
    int fd = facade_connect(f);
    char message[64];
    buf_printf(&headers, "%sContent-Type: application/json\r\n%c", facade_headers(sb, 49983), 0);
    assert_int_equal(
        facade_call(f, "POST", "/filesystem.Filesystem/ListDir", buf_data(&headers), STR("{\"path\":\"\"}"), NULL, &b),
        200);
    assert_has(&b, "{\"entries\":[{\"name\":\"a\"");
    assert_int_equal(
        facade_call(f, "POST", "/filesystem.Filesystem/Stat", buf_data(&headers), STR("{\"path\":\"no\"}"), NULL, &b),
        404);
    assert_has(&b, "{\"code\":\"not_found\"");
    assert_int_equal(facade_call(f, "POST", "/filesystem.Filesystem/MakeDir", buf_data(&headers),
                                 STR("{\"path\":\"/t/d\"}"), NULL, &b),
                     200);
    assert_has(&b, "{\"entry\":{\"name\":\"d\"");
    assert_int_equal(facade_call(f, "POST", "/filesystem.Filesystem/Remove", buf_data(&headers),
                                 STR("{\"path\":\"/t/d\"}"), NULL, &b),
                     200);
    assert_is(&b, "{}");

    facade_envelope(&body, STR("{\"path\":\"/t/d\",\"includeEntry\":true}"));
    buf_printf(
        &request,
        "POST /filesystem.Filesystem/WatchDir HTTP/1.1\r\nHost: localhost\r\n%sContent-Type: application/connect+json\r\n"
        "Content-Length: %zu\r\n\r\n",
        facade_headers(sb, 49983), buf_len(&body));
    buf_append_str(&request, buf_str(&body));
    facade_send(f, fd, buf_str(&request));
    buf_clear(&b);
    facade_receive(f, fd, &b, "{\"start\":{}}");
    fake_watch_event(a, WIRE_WATCH_CREATE, "new");
    facade_receive(f, fd, &b,
                   "{\"filesystem\":{\"name\":\"new\",\"type\":\"EVENT_TYPE_CREATE\",\"entry\":{\"name\":\"new\"");
    fake_watch_event(a, WIRE_WATCH_REMOVE, "new");
    facade_receive(f, fd, &b, "{\"name\":\"new\",\"type\":\"EVENT_TYPE_REMOVE\"}}");
    fd_close(fd);
    WAIT(f->w, a->closes > 0);

    watcher_of(f, buf_data(&headers), &b, message, sizeof(message));
    assert_int_equal(facade_call(f, "POST", "/filesystem.Filesystem/GetWatcherEvents", buf_data(&headers),
                                 str_of(message), NULL, &b),
                     200);
    assert_is(&b, "{}");
    fake_watch_event(a, WIRE_WATCH_WRITE, "x");
    fake_watch_event(a, WIRE_WATCH_CHMOD, "x");
    world_turns(f->w, 50);
    assert_int_equal(facade_call(f, "POST", "/filesystem.Filesystem/GetWatcherEvents", buf_data(&headers),
                                 str_of(message), NULL, &b),
                     200);
    assert_is(
        &b,
        "{\"events\":[{\"name\":\"x\",\"type\":\"EVENT_TYPE_WRITE\"},{\"name\":\"x\",\"type\":\"EVENT_TYPE_CHMOD\"}]}");
    assert_int_equal(
        facade_call(f, "POST", "/filesystem.Filesystem/RemoveWatcher", buf_data(&headers), str_of(message), NULL, &b),
        200);
    assert_int_equal(facade_call(f, "POST", "/filesystem.Filesystem/GetWatcherEvents", buf_data(&headers),
                                 str_of(message), NULL, &b),
                     404);

    /* What nobody fetches is the tenant's share of memory. */
    struct charge all = {.core = f->w->core, .tenant = TENANT_DEFAULT};
    struct err err;
    watcher_of(f, buf_data(&headers), &b, message, sizeof(message));
    assert_int_equal(charge_memory(&all, 256 << 20, &err), 0);
    fake_watch_event(a, WIRE_WATCH_WRITE, "x");
    world_turns(f->w, 50);
    charge_release(&all);
    assert_int_equal(facade_call(f, "POST", "/filesystem.Filesystem/GetWatcherEvents", buf_data(&headers),
                                 str_of(message), NULL, &b),
                     429);
    assert_has(&b, "too many events are pending");
    assert_int_equal(
        facade_call(f, "POST", "/filesystem.Filesystem/RemoveWatcher", buf_data(&headers), str_of(message), NULL, &b),
        200);

    for (int i = 0; i < 64; i++)
        assert_int_equal(facade_call(f, "POST", "/filesystem.Filesystem/CreateWatcher", buf_data(&headers),
                                     STR("{\"path\":\"/t/d\"}"), NULL, &b),
                         200);
    assert_int_equal(facade_call(f, "POST", "/filesystem.Filesystem/CreateWatcher", buf_data(&headers),
                                 STR("{\"path\":\"/t/d\"}"), NULL, &b),
                     429);
    world_end_agent(f->w, a, SUP_CAUSE_EXITED);
    world_turns(f->w, 50);
}

/* The stream of the write that is under way; 0: none. */
static uint32_t writing(const struct fake_agent *a)
{
    const struct fake_stream *st;
    size_t it = 0;
    while ((st = map_next(&a->streams, &it)))
        if (st->verb == WIRE_WRITE && buf_len(&st->in))
            return st->id;
    return 0;
}

/* It says that all is written while most is still to come. */
static void a_write_that_the_agent_ends_early_is_no_success(void **state)
{
    AUTO_BUF struct buf head = BUF_INIT(2048), data = BUF_INIT(1 << 20), entry = BUF_INIT(4096), b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    struct fake_agent *a = world_agent(f->w, sb);
    int fd = facade_connect(f);
    uint32_t id;
    fill(&data, 400000);
    buf_printf(&head, "POST /files?path=/t/early HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n%s%s\r\n",
               buf_len(&data), octets, facade_headers(sb, 49983));
    facade_send(f, fd, buf_str(&head));
    facade_send(f, fd, str_n(buf_data(&data), 1000));
    WAIT(f->w, (id = writing(a)));
    fake_put_entry(&entry, "/t/early", 1000);
    fake_end(a, id, 0, "", buf_str(&entry));
    world_turns(f->w, 20);
    facade_send(f, fd, str_sub(buf_str(&data), 1000));
    shutdown(fd, SHUT_WR);
    facade_receive(f, fd, &b, NULL);
    assert_null(memmem(buf_data(&b) ? buf_data(&b) : "", buf_len(&b), " 200 ", 5));
    (void)fd_close(fd);
}

static void other_ports_are_relayed_and_explained(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), headers = BUF_INIT(2048), head = BUF_INIT(16384);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    char expected[256];
    /* The agent echoes on port 80, which is no HTTP; nobody listens on the others. */
    buf_printf(&headers, "%s%c", facade_headers(sb, 80), 0);
    assert_int_equal(facade_call(f, "GET", "/x", buf_data(&headers), STR_NULL, NULL, &b), 502);
    assert_has(&b, "gave no valid answer");
    buf_clear(&headers);
    buf_printf(&headers, "%s%c", facade_headers(sb, 81), 0);
    assert_int_equal(facade_call(f, "GET", "/x", buf_data(&headers), STR_NULL, NULL, &b), 502);
    snprintf(
        expected, sizeof(expected),
        "{\"sandboxId\":\"%s\",\"message\":\"The sandbox is running but port is not open\",\"port\":81,\"code\":502}",
        sandbox_info(sb)->id);
    assert_is(&b, expected);
    assert_int_equal(world_agent(f->w, sb)->dials, 6);
    buf_clear(&headers);
    buf_printf(&headers, "%sUser-Agent: Mozilla/5.0\r\nAccept: text/html\r\n%c", facade_headers(sb, 81), 0);
    assert_int_equal(facade_call(f, "GET", "/x", buf_data(&headers), STR_NULL, &head, &b), 502);
    assert_has(&head, "content-type: text/html");
    assert_has(&b, "<!doctype html>");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_disk_is_told_from_other_limits, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(large_files_go_in_and_out_whole, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(one_request_may_carry_many_files, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(gzip_goes_both_ways, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(parts_conditions_and_empty_files, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(bad_uploads_are_told_what_is_wrong, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(files_are_joined, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(an_upload_may_end_with_its_client_or_its_sandbox, facade_setup,
                                        facade_teardown),
        cmocka_unit_test_setup_teardown(a_write_that_the_agent_ends_early_is_no_success, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(a_signature_finds_its_sandbox, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(the_only_sandbox_is_not_meant_without_a_key, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(clients_that_say_too_much_or_too_little, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(pages_of_other_sites_have_no_open_sandbox, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(an_alias_leads_to_ports_and_to_nothing_else, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(directories_are_listed_and_watched, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(other_ports_are_relayed_and_explained, facade_setup, facade_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
