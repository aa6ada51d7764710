/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "kernel/pool/pool.h"
#include "kernel/tree/tree.h"
#include "tier/files.h"
#include "tier/tier.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define LAYER "layer-0123456789abcdefghij"

/* Half an image is of a machine that ended while it was made, and may be as large as the layer. */
static void test_a_layer_s_images_go_with_it(void **state)
{
    static const char *const files[] = {FILES_IMAGES "/" LAYER, FILES_IMAGES "/." LAYER,
                                        FILES_BOOTS "/" LAYER "/memory"};
    char dir[] = "/tmp/files-test-XXXXXX";
    struct tier_host host = {.pool = NULL};
    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(pool_open_as(dir, POOL_COPY, &host.pool), 0);
    const int pool = pool_fd(host.pool);
    assert_int_equal(mkdirat(pool, FILES_IMAGES, 0700), 0);
    assert_int_equal(mkdirat(pool, FILES_BOOTS, 0700), 0);
    assert_int_equal(mkdirat(pool, FILES_BOOTS "/" LAYER, 0700), 0);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        assert_int_equal(fd_write_file(pool, files[i], STR("x"), 0600), 0);
    assert_int_equal(files_layer_drop(&host, LAYER), -ENOENT);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        assert_int_equal(faccessat(pool, files[i], F_OK, AT_SYMLINK_NOFOLLOW), -1);
    pool_close(host.pool);
    assert_int_equal(tree_remove(AT_FDCWD, dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_layer_s_images_go_with_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
