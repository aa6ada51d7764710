/* SPDX-License-Identifier: Apache-2.0 */
/* Who may be dialled. */
#include "image/registry/http.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define OWN "198.41.0.4" /* public, but for who has it */

static bool never(void *ctx)
{
    (void)ctx;
    return false;
}

static int nobody(void *ctx, const void *p, size_t n, struct err *err)
{
    (void)ctx, (void)p, (void)n;
    return err_set(err, ERR_INTERNAL, "there is nobody to answer");
}

/* Into a network of our own, whose only interface has that address. */
static bool enter_network(void)
{
    struct ifreq address = {.ifr_name = "lo"}, flags = {.ifr_name = "lo"};
    struct sockaddr_in own = {.sin_family = AF_INET};
    if (unshare(CLONE_NEWNET) < 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
        return false;
    int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_int_equal(inet_pton(AF_INET, OWN, &own.sin_addr), 1);
    memcpy(&address.ifr_addr, &own, sizeof(own));
    flags.ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING;
    bool good = sock >= 0 && ioctl(sock, SIOCSIFADDR, &address) == 0 && ioctl(sock, SIOCSIFFLAGS, &flags) == 0;
    (void)close(sock);
    return good;
}

static enum err_code ask(const struct http_hosts *hosts, const char *url, struct err *err)
{
    AUTO(http_free) struct http *h = NULL;
    const struct http_config config = {
        .hosts = hosts, .stall_s = 5, .until = clock_mono() + 20 * USEC_PER_SEC, .canceled = never};
    const struct registry_request q = {.url = url, .max_bytes = 1024, .body = nobody};
    struct http_answer answer;
    assert_int_equal(http_new(&config, &h, err), 0);
    assert_int_equal(http_get(h, &q, &answer, err), -1);
    return err->code;
}

static void the_machine_itself_is_asked_only_by_name(void **state)
{
    struct http_hosts none = {.n = 0}, own = {.n = 0};
    struct err err;
    (void)state;
    if (!enter_network()) {
        print_message("no network namespace of our own\n");
        skip();
    }
    assert_int_equal(ask(&none, "https://" OWN ":9/v2/", &err), ERR_PERMISSION_DENIED);
    assert_non_null(strstr(err.msg, "this machine's own"));
    assert_int_equal(ask(&none, "http://" OWN ":9/v2/", &err), ERR_PERMISSION_DENIED);
    assert_true(http_hosts_add(&own, STR("https://" OWN ":9")));
    assert_int_equal(ask(&own, "https://" OWN ":9/v2/", &err), ERR_UNAVAILABLE); /* nobody listens */
    assert_int_equal(ask(&own, "http://" OWN ":9/v2/", &err), ERR_PERMISSION_DENIED);
    assert_int_equal(ask(&none, "https://169.254.169.254/", &err), ERR_PERMISSION_DENIED);
    assert_int_equal(ask(&none, "https://10.0.0.1/", &err), ERR_PERMISSION_DENIED);
    assert_int_equal(ask(&none, "https://x.onion/", &err), ERR_NOT_FOUND); /* which nobody is asked for */
    assert_non_null(strstr(err.msg, "is the registry's name right, and does this machine have DNS?"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_machine_itself_is_asked_only_by_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
