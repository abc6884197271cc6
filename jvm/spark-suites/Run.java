import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;

import org.scalatest.Suite;
import org.scalatest.tools.Runner;
import scala.collection.Iterator;

/**
 * Runs suites of ScalaTest but for the cases that a file names: ScalaTest's own runner has no way
 * to leave one out.
 *
 * <p>{@code java Run.java PLAN RUNPATH REPORTS}: PLAN has lines of {@code suite|mode|case}, where
 * mode is {@code suite} (run it all), {@code not} (all but this case) or {@code only} (this case
 * and the others that are named so). A case that the suite does not have ends the run: a renamed
 * case must not go on being left out, or not be run, unseen.
 */
final class Run {
    private final List<String> arguments = new ArrayList<>();

    public static void main(String[] words) throws Exception {
        Run run = new Run();
        run.arguments.addAll(List.of("-R", words[1], "-u", words[2], "-oWD"));
        run.plan(Files.readAllLines(Path.of(words[0])));
        // No suite may leave the JVM waiting for a thread that is not a daemon.
        System.exit(Runner.run(run.arguments.toArray(new String[0])) ? 0 : 1);
    }

    private void plan(List<String> lines) throws Exception {
        String suite = null;
        Set<String> not = new TreeSet<>();
        Set<String> only = new TreeSet<>();
        for (String line : lines) {
            String[] parts = line.split("\\|", 3);
            if (parts[1].equals("suite")) {
                add(suite, not, only);
                suite = parts[0];
                not.clear();
                only.clear();
            } else {
                (parts[1].equals("not") ? not : only).add(parts[2]);
            }
        }
        add(suite, not, only);
    }

    private void add(String suite, Set<String> not, Set<String> only) throws Exception {
        if (suite == null) {
            return;
        }
        Set<String> cases = cases(suite);
        for (Set<String> named : List.of(not, only)) {
            for (String name : named) {
                if (!cases.contains(name)) {
                    throw new IOException(suite + " has no case \"" + name + "\"; it has " + cases);
                }
            }
        }
        if (!only.isEmpty()) {
            cases.retainAll(only);
        }
        cases.removeAll(not);
        arguments.add("-s");
        arguments.add(suite);
        for (String name : cases) {
            arguments.add("-t");
            arguments.add(name);
        }
    }

    private static Set<String> cases(String suite) throws Exception {
        Suite made = (Suite) Class.forName(suite).getDeclaredConstructor().newInstance();
        Set<String> cases = new TreeSet<>();
        Iterator<String> names = made.testNames().iterator();
        while (names.hasNext()) {
            cases.add(names.next());
        }
        return cases;
    }
}
