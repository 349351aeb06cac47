/* Fills 32 MiB, and 96 more beside them; asks for a search for leaks in mid-run; fills those once more,
   tells what is in RAM, in MiB, and reads all. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int __lsan_do_recoverable_leak_check(void);

enum { MIB = 1 << 20, KEPT = 32 * MIB / sizeof(long), BESIDE = 96 * MIB / sizeof(long) };

static void fill(long *words, long count, long salt) {
    for (long index = 0; index < count; index++) words[index] = index * 1000003 + salt;
}

static long wrong(const long *words, long count, long salt) {
    long wrong = 0;
    for (long index = 0; index < count; index++) wrong += words[index] != index * 1000003 + salt;
    return wrong;
}

int main(void) {
    long *kept = malloc(KEPT * sizeof(long));
    const int kind = MAP_PRIVATE | MAP_ANONYMOUS;
    long *beside = mmap(NULL, BESIDE * sizeof(long), PROT_READ | PROT_WRITE, kind, -1, 0);
    if (!kept || beside == MAP_FAILED) return 2;
    fill(kept, KEPT, 1);
    fill(beside, BESIDE, 2);
    int leaks = __lsan_do_recoverable_leak_check();
    for (long round = 3; round < 6; round++) {
        fill(beside, BESIDE, round);
        usleep(200000);
    }
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (!statm || fscanf(statm, "%*d %ld", &pages) != 1) return 2;
    fclose(statm);
    long words = wrong(kept, KEPT, 1) + wrong(beside, BESIDE, 5);
    printf("resident %ld\n%d leaks, %ld words are wrong\n", pages >> 8, leaks, words);
    free(kept);
    return leaks != 0 || words != 0;
}
