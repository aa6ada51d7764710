// SPDX-License-Identifier: Apache-2.0
// One context of Java: JShell in this process, between frames (src/sandbox/code/frame.h) on fds 3 and 4. What is printed goes to the descriptors 1 and 2, which `start` relays.
import java.io.*;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.stream.Collectors;
import jdk.jshell.*;
import sun.misc.Signal;

public class Runner {
    static final int READY = 1, RESULT = 4, ERROR = 5, COUNT = 6, END = 7, RESULT_MAX = 7 << 20;
    static final String[] IMPORTS = {"java.io.*", "java.math.*", "java.nio.file.*", "java.util.*", "java.util.concurrent.*", "java.util.function.*",
                                     "java.util.regex.*", "java.util.stream.*"};
    static OutputStream to;
    static JShell shell;
    static volatile boolean runs, interrupted;

    static ByteBuffer little(int size) { return ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN); }

    static byte[] u32(int n) { return little(4).putInt(n).array(); }

    static byte[] text(String s) {
        byte[] bytes = String.valueOf(s).getBytes(StandardCharsets.UTF_8);
        return little(4 + bytes.length).putInt(bytes.length).put(bytes).array();
    }

    static void frame(int kind, byte[]... parts) throws IOException {
        System.out.flush();
        System.err.flush();
        int n = Arrays.stream(parts).mapToInt(p -> p.length).sum();
        ByteBuffer all = little(5 + n).putInt(n).put((byte) kind);
        for (byte[] part : parts)
            all.put(part);
        to.write(all.array());
    }

    static void fail(String name, String value, String trace) throws IOException { frame(ERROR, text(name), text(value), text(trace)); }

    /** Whether it went well. */
    static boolean tell(List<SnippetEvent> events, boolean isLast) throws IOException {
        for (SnippetEvent e : events) {
            if (e.causeSnippet() != null) // what depends on it
                continue;
            if (interrupted) {
                fail("KeyboardInterrupt", "the cell was interrupted", "");
                return false;
            }
            if (e.status() == Snippet.Status.REJECTED) {
                String all = shell.diagnostics(e.snippet()).map(d -> d.getMessage(Locale.ROOT)).collect(Collectors.joining("\n"));
                fail("CompilationException", all, e.snippet().source() + "\n" + all);
                return false;
            }
            if (e.exception() != null) {
                StringWriter trace = new StringWriter();
                e.exception().printStackTrace(new PrintWriter(trace));
                String name = e.exception() instanceof EvalException ? ((EvalException) e.exception()).getExceptionClassName() : "UnresolvedReferenceException";
                fail(name, e.exception().getMessage(), trace.toString());
                return false;
            }
            boolean isValue = e.snippet().kind() == Snippet.Kind.EXPRESSION || e.snippet().subKind() == Snippet.SubKind.TEMP_VAR_EXPRESSION_SUBKIND;
            if (isLast && isValue && e.value() != null && !e.value().isEmpty()) {
                String value = e.value().startsWith("\"") ? e.value().translateEscapes() : e.value(); // strings are told as literals
                if (value.length() > RESULT_MAX)
                    System.err.println("text/plain: " + value.length() + " characters are too many for a result");
                else
                    frame(RESULT, new byte[] {1}, u32(1), text("text/plain"), text(value));
            }
        }
        return true;
    }

    static void run(String code) throws IOException {
        SourceCodeAnalysis analysis = shell.sourceCodeAnalysis();
        for (String rest = code; !rest.isBlank();) {
            SourceCodeAnalysis.CompletionInfo info = analysis.analyzeCompletion(rest);
            if (info.completeness() == SourceCodeAnalysis.Completeness.EMPTY)
                return;
            if (info.completeness() == SourceCodeAnalysis.Completeness.DEFINITELY_INCOMPLETE) {
                fail("IncompleteSourceException", "the code ends in the middle", rest);
                return;
            }
            String source = info.source() == null ? rest : info.source();
            rest = info.completeness().isComplete() ? info.remaining() : "";
            if (!tell(shell.eval(source), rest.isBlank()))
                return;
        }
    }

    static void cell(byte[] payload, int count) throws IOException {
        ByteBuffer in = ByteBuffer.wrap(payload).order(ByteOrder.LITTLE_ENDIAN);
        byte[] number = new byte[8];
        in.get(number);
        String code = string(in);
        Map<String, String> before = new HashMap<>();
        for (int n = in.getInt(); n > 0; n--) {
            String name = string(in);
            before.putIfAbsent(name, System.getProperty(name));
            System.setProperty(name, string(in));
        }
        frame(COUNT, u32(count));
        interrupted = false;
        runs = true;
        run(code);
        runs = false;
        before.forEach((name, value) -> {
            if (value == null)
                System.clearProperty(name);
            else
                System.setProperty(name, value);
        });
        frame(END, number);
    }

    static String string(ByteBuffer in) {
        byte[] bytes = new byte[in.getInt()];
        in.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    public static void main(String[] args) throws IOException {
        to = args.length > 0 ? OutputStream.nullOutputStream() : new FileOutputStream("/proc/self/fd/4");
        System.getenv().forEach((name, value) -> {
            if (System.getProperty(name) == null)
                System.setProperty(name, value);
        });
        shell = JShell.builder().executionEngine("local").out(System.out).err(System.err).build();
        for (String name : IMPORTS)
            shell.eval("import " + name + ";");
        if (args.length > 0) { // for an archive of the classes that this takes
            run("int x = 1; System.out.println(x); List.of(x).stream().map(v -> v + 1).collect(Collectors.toList())");
            return;
        }
        Signal.handle(new Signal("INT"), s -> {
            if (runs) {
                interrupted = true;
                shell.stop();
            }
        });
        DataInputStream from = new DataInputStream(new FileInputStream("/proc/self/fd/3"));
        frame(READY);
        for (int count = 1;; count++) {
            byte[] head = from.readNBytes(5);
            if (head.length < 5)
                System.exit(0);
            cell(from.readNBytes(ByteBuffer.wrap(head).order(ByteOrder.LITTLE_ENDIAN).getInt()), count);
        }
    }
}
