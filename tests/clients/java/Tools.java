import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Kafka's own command line tools one after the other in one JVM: a line of standard
 * input names the class, its arguments and its input; the answer has what it printed and its exit code.
 */
public final class Tools {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** The code of the first exit that the tool asked for: some catch what stops them, and ask again. */
    private static Integer exitCode;
    private static final List<Runnable> HOOKS = new ArrayList<>();

    /** Thrown in place of ending the process. */
    private static final class Exited extends Error {
        private Exited() {
            super("exit", null, false, false);
        }
    }

    private static void exit(int code, String message) {
        if (exitCode == null) exitCode = code;
        throw new Exited();
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        InputStream commands = System.in;
        Exit.setExitProcedure(Tools::exit);
        Exit.setHaltProcedure(Tools::exit);
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        var lines = new BufferedReader(new InputStreamReader(commands, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode command = JSON.readTree(line);
            var out = new ByteArrayOutputStream();
            var err = new ByteArrayOutputStream();
            int code;
            try (var o = new PrintStream(out, true, StandardCharsets.UTF_8);
                 var e = new PrintStream(err, true, StandardCharsets.UTF_8)) {
                System.setOut(o);
                System.setErr(e);
                System.setIn(new ByteArrayInputStream(command.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
                // Scala keeps the streams it found first, unless it is told.
                code = scala.Console$.MODULE$.<Integer>withOut(o, () ->
                    scala.Console$.MODULE$.<Integer>withErr(e, () -> run(command)));
            } finally {
                System.setOut(answers);
                System.setErr(errors);
            }
            answers.println(JSON.writeValueAsString(Map.of("ok", Map.of(
                "code", code,
                "out", out.toString(StandardCharsets.UTF_8),
                "err", err.toString(StandardCharsets.UTF_8)))));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(JsonNode command) {
        String[] arguments = new String[command.get("arguments").size()];
        for (int i = 0; i < arguments.length; i++) arguments[i] = command.get("arguments").get(i).asText();
        exitCode = null;
        HOOKS.clear();
        try {
            Class.forName(command.get("tool").asText()).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Exited)) {
                thrown.getCause().printStackTrace();
                exitCode = 1;
            }
        } catch (ReflectiveOperationException mistaken) {
            mistaken.printStackTrace();
            exitCode = 2;
        }
        HOOKS.forEach(Runnable::run);
        return exitCode == null ? 0 : exitCode;
    }
}
