/* A slow disk, which all threads of a process share: while there is a file SLOW_IF, each piece of
 * 64 KiB that is written to a file whose path contains SLOW_BELOW takes 60 ms, one after another, in
 * the order in which they come. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PIECE (64 << 10)

static unsigned tickets, served;

static void pause_for(long milliseconds) {
    struct timespec left = {0, milliseconds * 1000000};
    while (nanosleep(&left, &left) != 0) {
    }
}

static int is_slow(int file) {
    const char *below = getenv("SLOW_BELOW"), *condition = getenv("SLOW_IF");
    char link[64], path[PATH_MAX];
    if (!below || !condition || access(condition, F_OK) != 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, below) != NULL;
}

ssize_t write(int file, const void *bytes, size_t count) {
    static ssize_t (*next)(int, const void *, size_t);
    if (!next) next = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (!is_slow(file)) return next(file, bytes, count);
    unsigned ticket = __sync_fetch_and_add(&tickets, 1);
    while (__sync_fetch_and_add(&served, 0) != ticket) pause_for(1);
    pause_for(60);
    __sync_fetch_and_add(&served, 1);
    return next(file, bytes, count < PIECE ? count : PIECE);
}
