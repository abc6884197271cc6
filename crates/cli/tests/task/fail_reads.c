/* Lets each open of a file whose path contains FAIL_BELOW fail, as on a broken disk, while there is
 * a file FAIL_IF; and each look at a file of a directory whose path contains FAIL_LOOK. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails_by(const char *variable, const char *path) {
    const char *below = getenv(variable), *condition = getenv("FAIL_IF");
    return below && condition && strstr(path, below) && access(condition, F_OK) == 0;
}

int open64(const char *path, int flags, ...) {
    static int (*next)(const char *, int, ...);
    if (!next) next = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    mode_t mode = 0;
    if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {
        va_list rest;
        va_start(rest, flags);
        mode = va_arg(rest, mode_t);
        va_end(rest);
    }
    if (fails_by("FAIL_BELOW", path)) {
        errno = EIO;
        return -1;
    }
    return next(path, flags, mode);
}

/* The standard library of Rust looks at the entries of a directory with `statx`, and first tries
 * whether there is one, without a path. The header's declaration forbids that. */
int looked_at(int directory, const char *path, int flags, unsigned int mask, void *found)
    __asm__("statx");

int looked_at(int directory, const char *path, int flags, unsigned int mask, void *found) {
    static int (*next)(int, const char *, int, unsigned int, void *);
    if (!next) next = (int (*)(int, const char *, int, unsigned int, void *))dlsym(RTLD_NEXT, "statx");
    if (directory >= 0 && path && path[0] != '/' && path[0] != '\0') {
        char link[64], whole[8192];
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t length = readlink(link, whole, 4096);
        if (length > 0) {
            snprintf(whole + length, sizeof whole - length, "/%s", path);
            if (fails_by("FAIL_LOOK", whole)) {
                errno = EIO;
                return -1;
            }
        }
    }
    return next(directory, path, flags, mask, found);
}
