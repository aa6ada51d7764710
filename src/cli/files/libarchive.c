/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/files/libarchive.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

void *library_symbol(void *library, const char *name)
{
    void *symbol = library ? dlsym(library, name) : NULL;
    if (!symbol) {
        (void)fprintf(stderr, "cove: %s\n", dlerror());
        abort();
    }
    return symbol;
}

const struct libarchive *la(void)
{
    static struct libarchive loaded;
    if (!loaded.archive_read_new) {
        void *library = dlopen("libarchive.so.13", RTLD_NOW | RTLD_LOCAL);
#define LIBARCHIVE_LOAD(name)                                                                                          \
    loaded.archive_##name = (__typeof__(loaded.archive_##name))library_symbol(library, "archive_" #name);
        LIBARCHIVE(LIBARCHIVE_LOAD)
#undef LIBARCHIVE_LOAD
    }
    return &loaded;
}
