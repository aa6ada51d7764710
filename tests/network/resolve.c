/* SPDX-License-Identifier: Apache-2.0 */
/* Asks for a name as a program of Alpine does (static, musl): prints what getaddrinfo() says, and after how many
 * milliseconds. */
#include <netdb.h>
#include <stdio.h>
#include <time.h>

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct timespec a, b;
        struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
        (void)clock_gettime(CLOCK_MONOTONIC, &a);
        int r = getaddrinfo(argv[i], "80", &hints, &found);
        (void)clock_gettime(CLOCK_MONOTONIC, &b);
        printf("%s %ld\n", r ? gai_strerror(r) : "found",
               (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000);
        if (r == 0)
            freeaddrinfo(found);
    }
    return 0;
}
