/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/test_facade.h"
#include "api/opensandbox/handlers.h"
#include "api/opensandbox/opensandbox.h"
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/key.h"
#include "sandbox/object.h"

#include <jansson.h>

#define KEY "OPEN-SANDBOX-API-KEY: key-of-the-tests\r\n"

static int setup(void **state)
{
    struct test_facade *f = facade_open();
    struct opensandbox *o = opensandbox_new(&(struct opensandbox_config){.core = f->w->core});
    key_set_builtin(f->w->core, STR("key-of-the-tests"));

    facade_claim(f, &(struct claim){.prefix = "/v1/", .serve = opensandbox_serve, .facade = o});
    *state = f;
    return 0;
}

static void free_facade(void *facade)
{
    opensandbox_free(facade);
}

static int teardown(void **state)
{
    return facade_close(*state, free_facade);
}

static int ask(struct test_facade *f, const char *method, const char *path, const char *headers, const char *body,
               struct buf *ret_body)
{
    return facade_call(f, method, path, headers, body ? str_of(body) : STR_NULL, NULL, ret_body);
}

static void create(struct test_facade *f, const char *more, struct buf *b, char id[ID_SANDBOX_LEN + 1])
{
    AUTO_FREE char *body = mem_printf("{\"image\":{\"uri\":\"base\"}%s}", more);
    if (ask(f, "POST", "/v1/sandboxes", KEY, body, b) != 202)
        fail_msg("%.*s", STR_ARG(buf_str(b)));
    json_t *answer = json_loadb(buf_data(b), buf_len(b), 0, NULL);
    memcpy(id, json_string_value(json_object_get(answer, "id")), ID_SANDBOX_LEN);
    id[ID_SANDBOX_LEN] = 0;
    json_decref(answer);
}

static void who_has_no_key_gets_nothing(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), head = BUF_INIT(4096);
    struct test_facade *f = *state;
    assert_int_equal(ask(f, "GET", "/v1/sandboxes", "", NULL, &b), 401);
    assert_has(&b, "\"code\":\"MISSING_API_KEY\"");
    assert_int_equal(ask(f, "GET", "/v1/sandboxes", "OPEN-SANDBOX-API-KEY: other\r\n", NULL, &b), 401);
    assert_has(&b, "\"code\":\"INVALID_API_KEY\"");
    assert_int_equal(ask(f, "POST", "/v1/sandboxes", "", "{\"image\":{\"uri\":\"base\"}}", &b), 401);
    assert_int_equal(facade_call(f, "GET", "/v1/sandboxes/nobody", KEY "X-Request-ID: mine\r\n", STR_NULL, &head, &b),
                     404);
    assert_has(&head, "x-request-id: mine");
    assert_has(&b, "DOCKER::SANDBOX_NOT_FOUND");
}

/* The token of one sandbox opens its own execd and egress service, and nothing else. */
static void a_token_opens_one_sandbox(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    char one[ID_SANDBOX_LEN + 1], two[ID_SANDBOX_LEN + 1];
    create(f, "", &b, one);
    create(f, "", &b, two);
    AUTO_FREE char *endpoint = mem_printf("/v1/sandboxes/%s/endpoints/44772", one);
    assert_int_equal(ask(f, "GET", endpoint, KEY, NULL, &b), 200);
    const char *token = sandbox_info(sandbox_find(f->w->core, str_of(one)))->access_token;
    assert_has(&b, token);
    assert_has(&b, "/proxy/44772\"");
    AUTO_FREE char *ping = mem_printf("/v1/sandboxes/%s/proxy/44772/ping", one);
    AUTO_FREE char *other = mem_printf("/v1/sandboxes/%s/proxy/44772/ping", two);
    AUTO_FREE char *policy = mem_printf("/v1/sandboxes/%s/proxy/18080/policy", one);
    AUTO_FREE char *header = mem_printf("X-EXECD-ACCESS-TOKEN: %s\r\n", token);
    AUTO_FREE char *egress = mem_printf("OPENSANDBOX-EGRESS-AUTH: %s\r\n", token);
    assert_int_equal(ask(f, "GET", ping, header, NULL, &b), 200);
    assert_int_equal(ask(f, "GET", ping, KEY, NULL, &b), 200);
    assert_int_equal(ask(f, "GET", ping, "", NULL, &b), 401);
    assert_has(&b, "\"error\":");
    assert_int_equal(ask(f, "GET", ping, "X-EXECD-ACCESS-TOKEN: guessed\r\n", NULL, &b), 401);
    assert_int_equal(ask(f, "GET", other, header, NULL, &b), 401);
    assert_int_equal(ask(f, "GET", policy, header, NULL, &b), 401);
    assert_int_equal(ask(f, "GET", policy, egress, NULL, &b), 200);
    assert_int_equal(ask(f, "GET", "/v1/sandboxes", header, NULL, &b), 401);
}

/* What has come of a line waits for its end: for so long it is the tenant's to answer for. */
static void lines_of_commands_are_charged(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    AUTO_BUF struct buf request = BUF_INIT(1 << 12);
    struct test_facade *f = *state;
    static const char body[] = "{\"command\":\"cat\"}";
    char id[ID_SANDBOX_LEN + 1];
    create(f, "", &b, id);
    const size_t before = f->w->core->charged_bytes;
    buf_printf(&request,
               "POST /v1/sandboxes/%s/proxy/44772/command HTTP/1.1\r\nHost: x\r\n" KEY "Content-Length: %zu\r\n\r\n%s",
               id, strlen(body), body);
    int fd = facade_connect(f);
    facade_send(f, fd, buf_str(&request));
    WAIT(f->w, f->w->core->charged_bytes >= before + 2 * (size_t)SSE_LINE_MAX);
    AUTO_FREE char *path = mem_printf("/v1/sandboxes/%s", id);
    assert_int_equal(ask(f, "DELETE", path, KEY, NULL, &b), 204);
    close(fd);
    WAIT(f->w, f->w->core->charged_bytes == before);
}

static json_t *get_endpoint(struct test_facade *f, const char *id, const char *rest)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    AUTO_FREE char *path = mem_printf("/v1/sandboxes/%s/endpoints/%s", id, rest);
    assert_int_equal(ask(f, "GET", path, KEY, NULL, &b), 200);
    return json_loadb(buf_data(&b), buf_len(&b), 0, NULL);
}

/* Of a signed endpoint that leads to execd's ping. */
static int ask_signed(struct test_facade *f, const char *endpoint)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    AUTO_FREE char *ping = mem_printf("%s/ping", strchr(endpoint, '/'));
    return ask(f, "GET", ping, "", NULL, &b);
}

static void a_signed_endpoint_opens_its_port_until_it_expires(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    char one[ID_SANDBOX_LEN + 1], two[ID_SANDBOX_LEN + 1];
    create(f, "", &b, one);
    create(f, "", &b, two);
    AUTO_FREE char *soon = mem_printf("44772?expires=%llu", (unsigned long long)(clock_real() / USEC_PER_SEC + 2));
    json_t *answer = get_endpoint(f, one, soon);
    AUTO_FREE char *endpoint = mem_strdup(json_string_value(json_object_get(answer, "endpoint")));
    assert_null(json_object_get(answer, "headers"));
    json_decref(answer);
    assert_non_null(strstr(endpoint, "/proxy/44772"));
    assert_int_equal(ask_signed(f, endpoint), 200);
    char *signature = strstr(endpoint, "/proxy/") - 1;
    *signature ^= 1;
    assert_int_equal(ask_signed(f, endpoint), 401);
    *signature ^= 1;
    char *expiry = signature - 33; /* its last digit */
    *expiry = *expiry == 'z' ? 'y' : 'z';
    assert_int_equal(ask_signed(f, endpoint), 401);
    AUTO_FREE char *again = mem_printf("44772?expires=%llu", (unsigned long long)(clock_real() / USEC_PER_SEC + 1));
    answer = get_endpoint(f, one, again);
    const char *short_one = json_string_value(json_object_get(answer, "endpoint"));
    assert_int_equal(ask_signed(f, short_one), 200);
    char *other = strstr(short_one, one);
    memcpy(other, two, ID_SANDBOX_LEN);
    assert_int_equal(ask_signed(f, short_one), 401);
    memcpy(other, one, ID_SANDBOX_LEN);
    WAIT(f->w, ask_signed(f, short_one) == 401);
    json_decref(answer);

    AUTO_FREE char *egress = mem_printf("/v1/sandboxes/%s/proxy/18080/policy", strstr(endpoint, one));
    assert_int_equal(ask(f, "GET", egress, "", NULL, &b), 401);
    AUTO_FREE char *past = mem_printf("/v1/sandboxes/%s/endpoints/80?expires=1000000000", one);
    assert_int_equal(ask(f, "GET", past, KEY, NULL, &b), 400);
    AUTO_FREE char *odd = mem_printf("/v1/sandboxes/%s/endpoints/80?expires=soon", one);
    assert_int_equal(ask(f, "GET", odd, KEY, NULL, &b), 422);
}

/* Ports of programs are open unless secure access was asked for. */
static void secure_access_wants_its_token(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    char open[ID_SANDBOX_LEN + 1], secure[ID_SANDBOX_LEN + 1];
    create(f, "", &b, open);
    create(f, ",\"secureAccess\":true,\"extensions\":{\"access.renew.extend.seconds\":\"600\"},\"timeout\":60", &b,
           secure);
    assert_has(&b, "\"extensions\":{\"access.renew.extend.seconds\":\"600\"}");
    AUTO_FREE char *to_open = mem_printf("/v1/sandboxes/%s/proxy/81/x?y=1", open);
    AUTO_FREE char *to_secure = mem_printf("/v1/sandboxes/%s/proxy/81/", secure);
    AUTO_FREE char *by_execd = mem_printf("/v1/sandboxes/%s/proxy/44772/proxy/81/", secure);
    assert_int_equal(ask(f, "GET", to_open, "", NULL, &b), 502); /* nothing listens there */
    assert_has(&b, "SANDBOX::PORT_CLOSED");
    assert_int_equal(ask(f, "GET", to_secure, "", NULL, &b), 401);
    assert_int_equal(ask(f, "GET", to_secure, "OpenSandbox-Secure-Access: guessed\r\n", NULL, &b), 401);
    assert_int_equal(ask(f, "GET", by_execd, "", NULL, &b), 401);
    const struct sandbox_info *i = sandbox_info(sandbox_find(f->w->core, str_of(secure)));
    assert_true(i->end_at < clock_real() + 61 * USEC_PER_SEC);
    json_t *answer = get_endpoint(f, secure, "81");
    AUTO_FREE char *header =
        mem_printf("OpenSandbox-Secure-Access: %s\r\n",
                   json_string_value(json_object_get(json_object_get(answer, "headers"), "OpenSandbox-Secure-Access")));
    json_decref(answer);
    assert_int_equal(ask(f, "GET", to_secure, header, NULL, &b), 502);
    assert_int_equal(ask(f, "GET", to_secure, KEY, NULL, &b), 502);
    assert_int_equal(ask(f, "GET", by_execd, KEY, NULL, &b), 502);
    assert_true(i->end_at > clock_real() + 500 * USEC_PER_SEC);
    AUTO_FREE char *nobody = mem_printf("/v1/sandboxes/%s0/proxy/81/", open);
    assert_int_equal(ask(f, "GET", nobody, KEY, NULL, &b), 404);
}

/* What isn't understood opens nothing. */
static void what_is_not_there_is_refused(void **state)
{
    static const struct {
        const char *body, *says;
    } bad[] = {
        {"{}", "exactly one of"},
        {"{\"image\":{\"uri\":\"base\"},\"snapshotId\":\"x\"}", "exactly one of"},
        {"{\"image\":{\"uri\":\"nowhere/none:1\"}}", "no template stands for the image"},
        {"{\"image\":{\"uri\":\"base\"},\"networkPolicy\":[]}", "networkPolicy must be an object"},
        {"{\"image\":{\"uri\":\"base\"},\"networkPolicy\":{\"defaultaction\":\"deny\"}}", "unknown field"},
        {"{\"image\":{\"uri\":\"base\"},\"networkPolicy\":{\"egress\":[{\"target\":\"\"}]}}", "egress[0]"},
        {"{\"image\":{\"uri\":\"base\"},\"network\":{}}", "unknown field"},
        {"{\"image\":{\"uri\":\"base\"},\"metadata\":{\"opensandbox.io/image\":\"x\"}}", "labels"},
        {"{\"image\":{\"uri\":\"base\"},\"metadata\":{\"a\":\"-\"}}", "labels"},
        {"{\"image\":{\"uri\":\"base\"},\"resourceLimits\":{\"memory\":\"many\"}}", "not a quantity"},
        {"{\"image\":{\"uri\":\"base\"},\"resourceLimits\":{\"memory\":\"1e300\"}}", "not a quantity"},
        {"{\"image\":{\"uri\":\"base\"},\"resourceLimits\":{\"gpu\":\"1\"}}", "there is no 'gpu'"},
        {"{\"image\":{\"uri\":\"base\"},\"platform\":{\"os\":\"windows\"}}", "platform"},
        {"{\"image\":{\"uri\":\"base\"},\"volumes\":[{\"mountPath\":\"/x\",\"host\":{\"path\":\"/\"}}]}",
         "absolute and clean"},
        {"{\"image\":{\"uri\":\"base\"},\"volumes\":[{\"mountPath\":\"/x\",\"pvc\":{\"claimName\":\"v\"},\"host\":{\"path\":\"/srv\"}}]}",
         "exactly one of"},
        {"{\"image\":{\"uri\":\"base\"},\"volumes\":[{\"mountPath\":\"/x\",\"ossfs\":{\"bucket\":\"b\"}}]}",
         "object stores"},
        {"{\"image\":{\"uri\":\"base\"},\"volumes\":[{\"mountPath\":\"/x\",\"host\":{\"path\":\"/srv/../etc\"}}]}",
         "absolute and clean"},
        {"{\"image\":{\"uri\":\"base\"},\"volumes\":[{\"mountPath\":\"/x\",\"host\":{\"path\":\"/srv\"},\"subPath\":\"../x\"}]}",
         "relative and clean"},
        {"{\"image\":{\"uri\":\"base\"},\"volumes\":[7]}", "volumes are objects"},
        {"{\"extensions\":{\"poolRef\":\"base\"}}", "there is no pool"},
        {"{\"image\":{\"uri\":\"base\"},\"lifecycle\":{\"preStart\":{}}}", "lifecycle.preStart.command"},
        {"{\"image\":{\"uri\":\"base\"},\"timeout\":-1}", "timeout"},
        {"{\"image\":{\"uri\":\"base\"},\"extensions\":{\"access.renew.extend.seconds\":\"299\"}}", "from 300"},
        {"{\"image\":{\"uri\":\"base\"},\"extensions\":{\"access.renew.extend.seconds\":600}}", "a string"},
    };
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        int status = ask(f, "POST", "/v1/sandboxes", KEY, bad[i].body, &b);
        if (status != 400 && status != 404 && status != 422 && status != 501)
            fail_msg("%s: %d", bad[i].body, status);
        assert_has(&b, bad[i].says);
    }
    assert_int_equal(sandbox_count(f->w->core), 0);
}

static void sandboxes_are_listed_by_state_and_metadata(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    char one[ID_SANDBOX_LEN + 1], two[ID_SANDBOX_LEN + 1];
    create(f, ",\"metadata\":{\"team\":\"a\",\"n\":\"1\"},\"entrypoint\":[\"tail\",\"-f\",\"/dev/null\"]", &b, one);
    assert_has(&b, "\"entrypoint\":[\"tail\",\"-f\",\"/dev/null\"]");
    assert_has(&b, "\"metadata\":{\"team\":\"a\",\"n\":\"1\"}");
    create(f, ",\"metadata\":{\"team\":\"b\"},\"timeout\":600", &b, two);
    assert_has(&b, "\"expiresAt\":");
    assert_int_equal(ask(f, "GET", "/v1/sandboxes?metadata=team%3Da%26n%3D1&state=Running&state=Paused", KEY, NULL, &b),
                     200);
    assert_has(&b, one);
    assert_has(&b, "\"totalItems\":1,");
    assert_int_equal(ask(f, "GET", "/v1/sandboxes?metadata=team%3Da%26n%3D2", KEY, NULL, &b), 200);
    assert_has(&b, "\"totalItems\":0,");
    assert_int_equal(ask(f, "GET", "/v1/sandboxes?page=2&pageSize=1", KEY, NULL, &b), 200);
    assert_has(&b, "\"totalPages\":2,\"hasNextPage\":false");

    AUTO_FREE char *logs = mem_printf("/v1/sandboxes/%s/diagnostics/logs?scope=lifecycle", one);
    assert_int_equal(ask(f, "GET", logs, KEY, NULL, &b), 200);
    assert_has(&b, "\"delivery\":\"inline\"");
    assert_has(&b, "sandbox.create");

    AUTO_FREE char *metadata = mem_printf("/v1/sandboxes/%s/metadata", one);
    assert_int_equal(ask(f, "PATCH", metadata, KEY, "{\"n\":null,\"team\":\"c\",\"x\":\"y\"}", &b), 200);
    assert_has(&b, "\"metadata\":{\"team\":\"c\",\"x\":\"y\"}");
    assert_has(&b, "\"uri\":\"base\"");
    assert_int_equal(ask(f, "PATCH", metadata, KEY, "{\"opensandbox.io/image\":\"z\"}", &b), 400);
}

static void pools_are_what_is_kept_ready_of_templates(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    assert_int_equal(ask(f, "POST", "/v1/pools", KEY, "{\"name\":\"nobody\",\"capacitySpec\":{\"bufferMax\":2}}", &b),
                     404);
    assert_int_equal(ask(f, "POST", "/v1/pools", KEY, "{\"name\":\"base\"}", &b), 422);
    assert_int_equal(ask(f, "POST", "/v1/pools", KEY, "{\"name\":\"base\",\"capacitySpec\":{\"bufferMax\":-1}}", &b),
                     422);
    assert_int_equal(
        ask(f, "POST", "/v1/pools", KEY,
            "{\"name\":\"base\",\"template\":{\"spec\":{\"containers\":[{\"image\":\"other\"}]}},\"capacitySpec\":{}}",
            &b),
        422);
    assert_int_equal(
        ask(f, "POST", "/v1/pools", KEY, "{\"name\":\"base\",\"capacitySpec\":{\"bufferMax\":2,\"bufferMin\":1}}", &b),
        201);
    assert_has(&b, "\"bufferMax\":2");
    assert_int_equal(ask(f, "POST", "/v1/pools", KEY, "{\"name\":\"base\",\"capacitySpec\":{\"bufferMax\":2}}", &b),
                     409);
    WAIT(f->w, ask(f, "GET", "/v1/pools/base", KEY, NULL, &b) == 200 &&
                   memmem(buf_data(&b), buf_len(&b), "\"available\":2", 13));
    assert_int_equal(ask(f, "GET", "/v1/pools", KEY, NULL, &b), 200);
    assert_has(&b, "{\"items\":[{\"name\":\"base\"");
    assert_int_equal(
        ask(f, "POST", "/v1/sandboxes", KEY,
            "{\"extensions\":{\"poolRef\":\"base\"},\"resourceLimits\":{\"cpu\":\"3\"},\"networkPolicy\":{\"egress\":[]}}",
            &b),
        202);
    assert_has(&b, "\"poolRef\":\"base\"");
    assert_int_equal(ask(f, "PUT", "/v1/pools/base", KEY, "{\"capacitySpec\":{\"bufferMax\":1}}", &b), 200);
    assert_int_equal(ask(f, "DELETE", "/v1/pools/base", KEY, NULL, &b), 204);
    assert_int_equal(ask(f, "GET", "/v1/pools/base", KEY, NULL, &b), 404);
}

static void hooks_and_diagnostics_of_one_that_goes(void **state)
{
    static const char *const asked[] = {
        "logs?scope=all", "events?scope=container", "logs?tail=1", "events?since=1h", "summary", "inspect"};
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    char id[ID_SANDBOX_LEN + 1];
    create(f,
           ",\"entrypoint\":[\"one\",\"two\"],\"lifecycle\":{\"preStart\":{\"command\":[\"three\"]},"
           "\"periodic\":[{\"name\":\"n\",\"schedule\":\"*/5 0-12 * * 7\",\"command\":[\"four\"]}]}",
           &b, id);
    for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
        AUTO_FREE char *path = mem_printf("/v1/sandboxes/%s/diagnostics/%s", id, asked[i]);
        assert_int_equal(ask(f, "GET", path, KEY, NULL, &b), 200);
    }
    AUTO_FREE char *since = mem_printf("/v1/sandboxes/%s/diagnostics/logs?since=1d", id);
    assert_int_equal(ask(f, "GET", since, KEY, NULL, &b), 400);
    AUTO_FREE char *events = mem_printf("/v1/sandboxes/%s/diagnostics/events?scope=process", id);
    assert_int_equal(ask(f, "GET", events, KEY, NULL, &b), 200);
    assert_has(&b, "opensandbox:entrypoint");
    assert_has(&b, "opensandbox:periodic:n");
    AUTO_FREE char *one = mem_printf("/v1/sandboxes/%s", id);
    assert_int_equal(ask(f, "DELETE", one, KEY, NULL, &b), 204);
}

/* The leak detector says whether anything of a figure that was told is left. */
static void figures_are_watched(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    char id[ID_SANDBOX_LEN + 1];
    create(f, "", &b, id);
    AUTO_FREE char *request = mem_printf("GET /v1/sandboxes/%s/proxy/44772/metrics/watch HTTP/1.1\r\n"
                                         "Host: 127.0.0.1\r\n" KEY "\r\n",
                                         id);
    AUTO_CLOSE int fd = facade_connect(f);
    facade_send(f, fd, str_of(request));
    buf_clear(&b);
    assert_true(facade_receive(f, fd, &b, "\"mem_used_mib\""));
}

static void the_policy_is_changed_by_rules(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    char id[ID_SANDBOX_LEN + 1];
    create(f, ",\"networkPolicy\":{\"egress\":[{\"action\":\"allow\",\"target\":\"a.example\"}]}", &b, id);
    AUTO_FREE char *policy = mem_printf("/v1/sandboxes/%s/proxy/18080/policy", id);
    assert_int_equal(ask(f, "GET", policy, KEY, NULL, &b), 200);
    assert_has(&b,
               "\"policy\":{\"defaultAction\":\"deny\",\"egress\":[{\"action\":\"allow\",\"target\":\"a.example\"}]}");
    assert_int_equal(
        ask(f, "PATCH", policy, KEY,
            "[{\"action\":\"deny\",\"target\":\"a.example\"},{\"action\":\"allow\",\"target\":\"b.example\"}]", &b),
        200);
    assert_has(&b, "[{\"action\":\"deny\",\"target\":\"a.example\"},{\"action\":\"allow\",\"target\":\"b.example\"}]");
    assert_int_equal(ask(f, "DELETE", policy, KEY, "[\"a.example\"]", &b), 200);
    assert_has(&b, "\"egress\":[{\"action\":\"allow\",\"target\":\"b.example\"}]");
    assert_int_equal(ask(f, "DELETE", policy, KEY, "[\"c.example\"]", &b), 200);
    assert_has(&b, "\"reason\":");
    assert_int_equal(ask(f, "PATCH", policy, KEY, "[]", &b), 400);
    assert_int_equal(ask(f, "PATCH", policy, KEY, "{}", &b), 400);
    assert_int_equal(ask(f, "PUT", policy, KEY, "", &b), 200);
    assert_has(&b, "\"defaultAction\":\"deny\",\"egress\":[]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_has_no_key_gets_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(lines_of_commands_are_charged, setup, teardown),
        cmocka_unit_test_setup_teardown(a_token_opens_one_sandbox, setup, teardown),
        cmocka_unit_test_setup_teardown(a_signed_endpoint_opens_its_port_until_it_expires, setup, teardown),
        cmocka_unit_test_setup_teardown(secure_access_wants_its_token, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_not_there_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(sandboxes_are_listed_by_state_and_metadata, setup, teardown),
        cmocka_unit_test_setup_teardown(pools_are_what_is_kept_ready_of_templates, setup, teardown),
        cmocka_unit_test_setup_teardown(hooks_and_diagnostics_of_one_that_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(figures_are_watched, setup, teardown),
        cmocka_unit_test_setup_teardown(the_policy_is_changed_by_rules, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
