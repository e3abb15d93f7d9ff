import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.kafka.common.utils.internals.Exit;

/**
 * Runs Kafka's command-line tools in one JVM, since a JVM for each would take most of the time.
 *
 * <p>A line of the input is a command, its fields apart by tabs: "run", "begin" or "end"; a name;
 * the seconds that it may take; the text of its standard input, in base64; the class of the tool;
 * its arguments. "begin" leaves the tool running, and "end" runs its shutdown hooks and waits for
 * it. "run" waits for the tool and then runs its shutdown hooks, as the end of a JVM would: some
 * records of a producer are acknowledged only then. "run" and "end" answer with a line: the name, the exit code or "late", and the outputs in base64.
 */
public class ToolSessions {
  /** Thrown where a tool would end the JVM. */
  private static class Ended extends Error {}

  private static class Session {
    final ByteArrayOutputStream out = new ByteArrayOutputStream();
    final ByteArrayOutputStream err = new ByteArrayOutputStream();
    final List<Runnable> hooks = new CopyOnWriteArrayList<>();
    final InputStream in;
    volatile Integer status;
    Thread thread;

    Session(byte[] in) {
      this.in = new ByteArrayInputStream(in);
    }

    synchronized void end(int code) {
      if (status == null) {
        status = code;
      }
    }
  }

  /** A tool's threads inherit the session of the thread that started them. */
  private static final InheritableThreadLocal<Session> SESSION = new InheritableThreadLocal<>();

  private static final PrintStream ANSWERS = System.out;

  private static class Captured extends OutputStream {
    private final boolean isError;

    Captured(boolean isError) {
      this.isError = isError;
    }

    private OutputStream target() {
      Session session = SESSION.get();
      if (session == null) {
        return OutputStream.nullOutputStream();
      }
      return isError ? session.err : session.out;
    }

    @Override
    public void write(int value) throws IOException {
      target().write(value);
    }

    @Override
    public void write(byte[] bytes, int start, int length) throws IOException {
      target().write(bytes, start, length);
    }
  }

  private static class Given extends InputStream {
    @Override
    public int read() throws IOException {
      Session session = SESSION.get();
      return session == null ? -1 : session.in.read();
    }
  }

  public static void main(String[] arguments) throws Exception {
    System.setOut(new PrintStream(new Captured(false), true, StandardCharsets.UTF_8));
    System.setErr(new PrintStream(new Captured(true), true, StandardCharsets.UTF_8));
    BufferedReader commands =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    System.setIn(new Given());
    Exit.setExitProcedure(ToolSessions::exit);
    Exit.setHaltProcedure(ToolSessions::exit);
    Exit.setShutdownHookAdder((name, hook) -> SESSION.get().hooks.add(hook));
    Map<String, Session> running = new ConcurrentHashMap<>();
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      String[] fields = line.split("\t", -1);
      String name = fields[1];
      long waitMs = 1000L * Integer.parseInt(fields[2]);
      Set<Thread> others = new HashSet<>(hooksOfTheJvm());
      if (!fields[0].equals("end")) {
        Session session = new Session(Base64.getDecoder().decode(fields[3]));
        String[] given = Arrays.copyOfRange(fields, 5, fields.length);
        session.thread = new Thread(() -> call(session, fields[4], given), name);
        session.thread.setDaemon(true);
        session.thread.start();
        running.put(name, session);
      } else {
        running.get(name).hooks.forEach(hook -> hook(running.get(name), hook));
      }
      if (!fields[0].equals("begin")) {
        Session session = running.remove(name);
        session.thread.join(waitMs);
        if (fields[0].equals("run") && !session.thread.isAlive()) {
          for (Runnable hook : session.hooks) {
            hook(session, hook).join(waitMs);
          }
          for (Thread hook : new HashSet<>(hooksOfTheJvm())) {
            if (!others.contains(hook)) {
              Runtime.getRuntime().removeShutdownHook(hook);
              hook.setDaemon(true);
              hook.start();
              hook.join(waitMs);
            }
          }
        }
        answer(name, session);
      }
    }
    Runtime.getRuntime().halt(0);
  }

  /** Hooks that a tool adds without Kafka's class Exit. They inherit its session. */
  @SuppressWarnings("unchecked")
  private static Set<Thread> hooksOfTheJvm() throws ReflectiveOperationException {
    Field hooks = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
    hooks.setAccessible(true);
    return ((Map<Thread, Thread>) hooks.get(null)).keySet();
  }

  private static Thread hook(Session session, Runnable hook) {
    Thread thread = new Thread(() -> {
      SESSION.set(session);
      hook.run();
    });
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  private static void exit(int status, String message) {
    SESSION.get().end(status);
    throw new Ended();
  }

  private static void call(Session session, String name, String[] arguments) {
    SESSION.set(session);
    try {
      Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
      session.end(0);
    } catch (InvocationTargetException problem) {
      if (!(problem.getCause() instanceof Ended)) {
        problem.getCause().printStackTrace();
      }
      session.end(1);
    } catch (ReflectiveOperationException problem) {
      problem.printStackTrace();
      session.end(127);
    }
  }

  private static void answer(String name, Session session) {
    String code = session.thread.isAlive() ? "late" : String.valueOf(session.status);
    ANSWERS.println(String.join("\t", name, code, coded(session.out), coded(session.err)));
    ANSWERS.flush();
  }

  private static String coded(ByteArrayOutputStream bytes) {
    return Base64.getEncoder().encodeToString(bytes.toByteArray());
  }
}
