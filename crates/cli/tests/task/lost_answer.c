/* Lets the first rename to a path that ends with LOST_AT fail after it has taken effect, as if the
 * answer of a backend were lost. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ends_with(const char *path, const char *end) {
    size_t length = strlen(path), wanted = strlen(end);
    return length >= wanted && strcmp(path + length - wanted, end) == 0;
}

int rename(const char *from, const char *to) {
    static int (*next)(const char *, const char *);
    static int is_lost;
    if (!next) next = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    int failed = next(from, to);
    const char *end = getenv("LOST_AT");
    if (!failed && end && ends_with(to, end) && !__sync_lock_test_and_set(&is_lost, 1)) {
        errno = EIO;
        return -1;
    }
    return failed;
}
