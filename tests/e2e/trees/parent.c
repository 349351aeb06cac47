/* parent MIB CHILDREN: fills so much, makes children that read all of it, now and after two seconds, and at once
 * stores to all of it. Children find what was there at the fork. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long random_word(void) {
    static unsigned long word = 88172645463325252UL;
    word ^= word << 13, word ^= word >> 7, word ^= word << 17;
    return word;
}

static void fill(unsigned long *memory, size_t words) {
    for (size_t word = 0; word < words; word++)
        memory[word] = random_word();
}

static unsigned long sum(const unsigned long *memory, size_t words) {
    unsigned long sum = 0;
    for (size_t word = 0; word < words; word++)
        sum += memory[word] ^ word;
    return sum;
}

int main(int count, char **words_given) {
    if (count != 3)
        return 64;
    size_t bytes = strtoul(words_given[1], 0, 10) << 20, words = bytes / sizeof(long);
    unsigned long *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 71;
    fill(memory, words);
    unsigned long right = sum(memory, words);
    for (int child = atoi(words_given[2]); child > 0; child--)
        if (fork() == 0) {
            int differs = sum(memory, words) != right;
            sleep(2);
            _exit(differs || sum(memory, words) != right);
        }
    fill(memory, words);
    int status, differ = 0;
    while (wait(&status) > 0)
        differ |= status;
    return differ != 0;
}
