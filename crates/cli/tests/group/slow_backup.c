/* A slow disk: the first write to each file whose path contains SLOW_BELOW takes SLOW_SECONDS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int is_slow(int file) {
    const char *below = getenv("SLOW_BELOW");
    char link[64], path[PATH_MAX];
    if (!below || lseek(file, 0, SEEK_CUR) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, below) != NULL;
}

ssize_t write(int file, const void *bytes, size_t count) {
    static ssize_t (*next)(int, const void *, size_t);
    if (!next) next = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (is_slow(file)) {
        const char *seconds = getenv("SLOW_SECONDS");
        struct timespec left = {seconds ? atoi(seconds) : 0, 0};
        while (nanosleep(&left, &left) != 0) {
        }
    }
    return next(file, bytes, count);
}
