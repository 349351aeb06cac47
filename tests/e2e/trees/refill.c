/* refill MIB WHO: fills so much twice, forks, and at once the child (c), the parent (p) or both (b) store to
 * all of it. Each finds what it stored, and else what was there at the fork. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long word_of(unsigned long seed, size_t at) {
    unsigned long word = (seed << 40) + at;
    word *= 0x9E3779B97F4A7C15UL, word ^= word >> 29;
    word *= 0xBF58476D1CE4E5B9UL;
    return word ^ word >> 32;
}

static void fill(unsigned long *memory, size_t words, unsigned long seed) {
    for (size_t at = 0; at < words; at++)
        memory[at] = word_of(seed, at);
}

static int differs(const unsigned long *memory, size_t words, unsigned long seed) {
    for (size_t at = 0; at < words; at++)
        if (memory[at] != word_of(seed, at))
            return 1;
    return 0;
}

int main(int count, char **words_given) {
    if (count != 3)
        return 64;
    size_t bytes = strtoul(words_given[1], 0, 10) << 20, words = bytes / sizeof(long);
    char who = *words_given[2];
    unsigned long *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 71;
    fill(memory, words, 1);
    fill(memory, words, 2);
    pid_t child = fork();
    unsigned long seed = child == 0 ? 3 : 4;
    if (who == 'b' || who == (child == 0 ? 'c' : 'p'))
        fill(memory, words, seed);
    else
        seed = 2;
    if (child == 0)
        _exit(differs(memory, words, seed));
    int status;
    waitpid(child, &status, 0);
    return status != 0 || differs(memory, words, seed);
}
