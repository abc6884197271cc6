/* A clock that is wrong, for processes that are started with this library before their own.
 *
 * WRONG_CLOCK names a file with the seconds that are added to the time of day. It is mapped, so a
 * change of the file makes the clock jump at once. Clocks that only count up stay as they are,
 * unless WRONG_UPTIME is set: then as much time passes for the process. The timed waits of Rust's
 * std give the kernel an absolute time of CLOCK_MONOTONIC, which does not jump: a wait that begins
 * after a jump takes as much longer. */
#include "faults.h"
#include <sys/time.h>

static volatile int64_t *seconds;
static int is_uptime_wrong;

__attribute__((constructor)) static void start(void) {
    is_uptime_wrong = getenv("WRONG_UPTIME") != NULL;
    seconds = mapped("WRONG_CLOCK", sizeof *seconds, PROT_READ);
}

static int64_t added(void) {
    return seconds ? *seconds : 0;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    REAL(clock_gettime);
    int failed = real(clock, time);
    int is_time_of_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    int is_uptime = clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE ||
                    clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_BOOTTIME;
    if (!failed && (is_time_of_day || (is_uptime && is_uptime_wrong))) {
        time->tv_sec += added();
    }
    return failed;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    REAL(gettimeofday);
    int failed = real(time, zone);
    if (!failed) time->tv_sec += added();
    return failed;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
