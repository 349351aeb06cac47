import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;

/** Fills most of the heap with objects, arrays and strings, churns through garbage, and prints a digest. */
public final class Objects {
    private static long state = 42;

    private static int below(int bound) {
        state = state * 6364136223846793005L + 1442695040888963407L;
        return (int) ((state >>> 33) % bound);
    }

    private static final class Node {
        final int number;
        final String name;
        Node next;
        long sum;

        Node(int number, Node next) {
            this.number = number;
            this.name = "node " + Integer.toString(number * 31, 36);
            this.next = next;
        }
    }

    public static void main(String[] arguments) {
        int count = Integer.parseInt(arguments[0]);
        Node[] heads = new Node[4096];
        HashMap<String, Integer> names = new HashMap<>();
        ArrayList<long[]> arrays = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            int head = below(heads.length);
            heads[head] = new Node(number, heads[head]);
            if (number % 4 == 0) {
                names.put(heads[head].name, number);
            }
            if (number % 16 == 0) {
                long[] array = new long[64];
                Arrays.fill(array, number);
                arrays.add(array);
            }
        }
        long digest = 0;
        for (int round = 0; round < 3; round++) {
            for (Node head : heads) {
                for (Node node = head; node != null; node = node.next) {
                    long[] array = arrays.get(below(arrays.size()));
                    array[node.number & 63] += node.number;
                    node.sum += array[round] + node.name.hashCode();
                    digest = digest * 31 + node.sum;
                }
            }
            // Garbage between what lives: a collection moves everything.
            for (int number = 0; number < arrays.size(); number += 2) {
                arrays.set(number, arrays.get(number).clone());
            }
            System.gc();
        }
        for (String name : names.keySet().stream().sorted().toList()) {
            digest = digest * 31 + name.hashCode() + names.get(name);
        }
        for (long[] array : arrays) {
            digest = digest * 31 + Arrays.hashCode(array);
        }
        System.out.println(names.size() + " " + arrays.size() + " " + Long.toHexString(digest));
    }
}
